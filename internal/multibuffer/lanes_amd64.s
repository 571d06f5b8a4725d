#include "textflag.h"

// Eight lanes of 32 bits in each register: Y0 to Y7 are the state, Y8 to Y23 the last sixteen words of the
// message schedule, Y24 to Y29 scratch, Y31 the order of bytes in a word.
//
// Names are those of FIPS 180-4, section 6.2.2.

// ROUND adds to h what the round adds, and h to d; w is the word of the schedule, and k the place of the constant.
#define ROUND(a, b, c, d, e, f, g, h, w, k) \
	VPADDD.BCST k(BX), w, Y28; \
	VPRORD      $6, e, Y24; \
	VPRORD      $11, e, Y25; \
	VPRORD      $25, e, Y26; \
	VMOVDQA32   e, Y27; \
	VPADDD      Y28, h, h; \
	VPTERNLOGD  $0x96, Y25, Y26, Y24; \
	VPTERNLOGD  $0xCA, g, f, Y27; \
	VPADDD      Y24, h, h; \
	VPADDD      Y27, h, h; \
	VPRORD      $2, a, Y24; \
	VPRORD      $13, a, Y25; \
	VPRORD      $22, a, Y26; \
	VPADDD      h, d, d; \
	VMOVDQA32   a, Y27; \
	VPTERNLOGD  $0x96, Y25, Y26, Y24; \
	VPTERNLOGD  $0xE8, c, b, Y27; \
	VPADDD      Y24, h, h; \
	VPADDD      Y27, h, h

// SCHEDULE makes the word sixteen rounds on of w0: w1, w9 and w14 are 1, 9 and 14 words on.
#define SCHEDULE(w0, w1, w9, w14) \
	VPADDD     w9, w0, w0; \
	VPRORD     $7, w1, Y24; \
	VPRORD     $18, w1, Y25; \
	VPSRLD     $3, w1, Y26; \
	VPRORD     $17, w14, Y27; \
	VPRORD     $19, w14, Y28; \
	VPSRLD     $10, w14, Y29; \
	VPTERNLOGD $0x96, Y25, Y26, Y24; \
	VPTERNLOGD $0x96, Y28, Y29, Y27; \
	VPADDD     Y24, w0, w0; \
	VPADDD     Y27, w0, w0

// HALVES loads 16 bytes of lanes n and n+4, R9 being how far lanes have come.
#define HALVES(at, n, y) \
	MOVQ            (8*n)(SI), R10; \
	MOVQ            (8*(n+4))(SI), R11; \
	VBROADCASTI32X4 at(R10)(R9*1), y; \
	VINSERTI32X4    $1, at(R11)(R9*1), y, y; \
	VPSHUFB         Y31, y, y

// WORDS loads the four words of all lanes that stand 16 bytes wide at a place.
#define WORDS(at, w0, w1, w2, w3) \
	HALVES(at, 0, w0); \
	HALVES(at, 1, w1); \
	HALVES(at, 2, w2); \
	HALVES(at, 3, w3); \
	VPUNPCKLDQ  w1, w0, Y24; \
	VPUNPCKHDQ  w1, w0, Y25; \
	VPUNPCKLDQ  w3, w2, Y26; \
	VPUNPCKHDQ  w3, w2, Y27; \
	VPUNPCKLQDQ Y26, Y24, w0; \
	VPUNPCKHQDQ Y26, Y24, w1; \
	VPUNPCKLQDQ Y27, Y25, w2; \
	VPUNPCKHQDQ Y27, Y25, w3

DATA bigEndian<>+0(SB)/8, $0x0405060700010203
DATA bigEndian<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL bigEndian<>(SB), RODATA, $16

// func compress(state *[8][lanes]uint32, input *[lanes]*byte, rounds *[64]uint32, blocks int)
TEXT ·compress(SB), NOSPLIT, $0-32
	MOVQ            state+0(FP), DI
	MOVQ            input+8(FP), SI
	MOVQ            rounds+16(FP), R8
	MOVQ            blocks+24(FP), DX
	XORL            R9, R9
	VBROADCASTI32X4 bigEndian<>(SB), Y31
	VMOVDQU32       0(DI), Y0
	VMOVDQU32       32(DI), Y1
	VMOVDQU32       64(DI), Y2
	VMOVDQU32       96(DI), Y3
	VMOVDQU32       128(DI), Y4
	VMOVDQU32       160(DI), Y5
	VMOVDQU32       192(DI), Y6
	VMOVDQU32       224(DI), Y7

block:
	MOVQ R8, BX
	WORDS(0, Y8, Y9, Y10, Y11)
	WORDS(16, Y12, Y13, Y14, Y15)
	WORDS(32, Y16, Y17, Y18, Y19)
	WORDS(48, Y20, Y21, Y22, Y23)
	ROUND(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, 0)
	ROUND(Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y9, 4)
	ROUND(Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y10, 8)
	ROUND(Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y11, 12)
	ROUND(Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y12, 16)
	ROUND(Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y13, 20)
	ROUND(Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y14, 24)
	ROUND(Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y15, 28)
	ROUND(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y16, 32)
	ROUND(Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y17, 36)
	ROUND(Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y18, 40)
	ROUND(Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y19, 44)
	ROUND(Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y20, 48)
	ROUND(Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y21, 52)
	ROUND(Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y22, 56)
	ROUND(Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y23, 60)
	MOVQ $3, CX

more:
	ADDQ $64, BX
	SCHEDULE(Y8, Y9, Y17, Y22)
	ROUND(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, 0)
	SCHEDULE(Y9, Y10, Y18, Y23)
	ROUND(Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y9, 4)
	SCHEDULE(Y10, Y11, Y19, Y8)
	ROUND(Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y10, 8)
	SCHEDULE(Y11, Y12, Y20, Y9)
	ROUND(Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y11, 12)
	SCHEDULE(Y12, Y13, Y21, Y10)
	ROUND(Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y12, 16)
	SCHEDULE(Y13, Y14, Y22, Y11)
	ROUND(Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y13, 20)
	SCHEDULE(Y14, Y15, Y23, Y12)
	ROUND(Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y14, 24)
	SCHEDULE(Y15, Y16, Y8, Y13)
	ROUND(Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y15, 28)
	SCHEDULE(Y16, Y17, Y9, Y14)
	ROUND(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y16, 32)
	SCHEDULE(Y17, Y18, Y10, Y15)
	ROUND(Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y17, 36)
	SCHEDULE(Y18, Y19, Y11, Y16)
	ROUND(Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y5, Y18, 40)
	SCHEDULE(Y19, Y20, Y12, Y17)
	ROUND(Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y4, Y19, 44)
	SCHEDULE(Y20, Y21, Y13, Y18)
	ROUND(Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y3, Y20, 48)
	SCHEDULE(Y21, Y22, Y14, Y19)
	ROUND(Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y21, 52)
	SCHEDULE(Y22, Y23, Y15, Y20)
	ROUND(Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y1, Y22, 56)
	SCHEDULE(Y23, Y8, Y16, Y21)
	ROUND(Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y0, Y23, 60)
	DECQ CX
	JNZ  more

	VPADDD    0(DI), Y0, Y0
	VMOVDQU32 Y0, 0(DI)
	VPADDD    32(DI), Y1, Y1
	VMOVDQU32 Y1, 32(DI)
	VPADDD    64(DI), Y2, Y2
	VMOVDQU32 Y2, 64(DI)
	VPADDD    96(DI), Y3, Y3
	VMOVDQU32 Y3, 96(DI)
	VPADDD    128(DI), Y4, Y4
	VMOVDQU32 Y4, 128(DI)
	VPADDD    160(DI), Y5, Y5
	VMOVDQU32 Y5, 160(DI)
	VPADDD    192(DI), Y6, Y6
	VMOVDQU32 Y6, 192(DI)
	VPADDD    224(DI), Y7, Y7
	VMOVDQU32 Y7, 224(DI)
	ADDQ $64, R9
	DECQ DX
	JNZ  block
	VZEROUPPER
	RET
