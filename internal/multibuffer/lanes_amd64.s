#include "textflag.h"

// Sixteen lanes of 32 bits in each register: Z0 to Z7 are the state, Z8 to Z23 the last sixteen words of the
// message schedule, Z24 to Z29 scratch, Z31 the order of bytes in a word.
//
// Names are those of FIPS 180-4, section 6.2.2.

// ROUND adds to h what the round adds, and h to d; w is the word of the schedule, and k the place of the constant.
#define ROUND(a, b, c, d, e, f, g, h, w, k) \
	VPADDD.BCST k(BX), w, Z28; \
	VPRORD      $6, e, Z24; \
	VPRORD      $11, e, Z25; \
	VPRORD      $25, e, Z26; \
	VMOVDQA32   e, Z27; \
	VPADDD      Z28, h, h; \
	VPTERNLOGD  $0x96, Z25, Z26, Z24; \
	VPTERNLOGD  $0xCA, g, f, Z27; \
	VPADDD      Z24, h, h; \
	VPADDD      Z27, h, h; \
	VPRORD      $2, a, Z24; \
	VPRORD      $13, a, Z25; \
	VPRORD      $22, a, Z26; \
	VPADDD      h, d, d; \
	VMOVDQA32   a, Z27; \
	VPTERNLOGD  $0x96, Z25, Z26, Z24; \
	VPTERNLOGD  $0xE8, c, b, Z27; \
	VPADDD      Z24, h, h; \
	VPADDD      Z27, h, h

// SCHEDULE makes the word sixteen rounds on of w0: w1, w9 and w14 are 1, 9 and 14 words on.
#define SCHEDULE(w0, w1, w9, w14) \
	VPADDD     w9, w0, w0; \
	VPRORD     $7, w1, Z24; \
	VPRORD     $18, w1, Z25; \
	VPSRLD     $3, w1, Z26; \
	VPRORD     $17, w14, Z27; \
	VPRORD     $19, w14, Z28; \
	VPSRLD     $10, w14, Z29; \
	VPTERNLOGD $0x96, Z25, Z26, Z24; \
	VPTERNLOGD $0x96, Z28, Z29, Z27; \
	VPADDD     Z24, w0, w0; \
	VPADDD     Z27, w0, w0

// QUARTER loads 16 bytes of lanes n, n+4, n+8 and n+12, R9 being how far lanes have come.
#define QUARTER(at, n, z) \
	MOVQ            (8*n)(SI), R10; \
	MOVQ            (8*(n+4))(SI), R11; \
	MOVQ            (8*(n+8))(SI), R12; \
	MOVQ            (8*(n+12))(SI), R13; \
	VBROADCASTI32X4 at(R10)(R9*1), z; \
	VINSERTI32X4    $1, at(R11)(R9*1), z, z; \
	VINSERTI32X4    $2, at(R12)(R9*1), z, z; \
	VINSERTI32X4    $3, at(R13)(R9*1), z, z; \
	VPSHUFB         Z31, z, z

// WORDS loads the four words of all lanes that stand 16 bytes wide at a place.
#define WORDS(at, w0, w1, w2, w3) \
	QUARTER(at, 0, w0); \
	QUARTER(at, 1, w1); \
	QUARTER(at, 2, w2); \
	QUARTER(at, 3, w3); \
	VPUNPCKLDQ  w1, w0, Z24; \
	VPUNPCKHDQ  w1, w0, Z25; \
	VPUNPCKLDQ  w3, w2, Z26; \
	VPUNPCKHDQ  w3, w2, Z27; \
	VPUNPCKLQDQ Z26, Z24, w0; \
	VPUNPCKHQDQ Z26, Z24, w1; \
	VPUNPCKLQDQ Z27, Z25, w2; \
	VPUNPCKHQDQ Z27, Z25, w3

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
	VBROADCASTI32X4 bigEndian<>(SB), Z31
	VMOVDQU32       0(DI), Z0
	VMOVDQU32       64(DI), Z1
	VMOVDQU32       128(DI), Z2
	VMOVDQU32       192(DI), Z3
	VMOVDQU32       256(DI), Z4
	VMOVDQU32       320(DI), Z5
	VMOVDQU32       384(DI), Z6
	VMOVDQU32       448(DI), Z7

block:
	MOVQ R8, BX
	WORDS(0, Z8, Z9, Z10, Z11)
	WORDS(16, Z12, Z13, Z14, Z15)
	WORDS(32, Z16, Z17, Z18, Z19)
	WORDS(48, Z20, Z21, Z22, Z23)
	ROUND(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, 0)
	ROUND(Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z9, 4)
	ROUND(Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z10, 8)
	ROUND(Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z11, 12)
	ROUND(Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z12, 16)
	ROUND(Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z13, 20)
	ROUND(Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z14, 24)
	ROUND(Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z15, 28)
	ROUND(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z16, 32)
	ROUND(Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z17, 36)
	ROUND(Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z18, 40)
	ROUND(Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z19, 44)
	ROUND(Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z20, 48)
	ROUND(Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z21, 52)
	ROUND(Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z22, 56)
	ROUND(Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z23, 60)
	MOVQ $3, CX

more:
	ADDQ $64, BX
	SCHEDULE(Z8, Z9, Z17, Z22)
	ROUND(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, 0)
	SCHEDULE(Z9, Z10, Z18, Z23)
	ROUND(Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z9, 4)
	SCHEDULE(Z10, Z11, Z19, Z8)
	ROUND(Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z10, 8)
	SCHEDULE(Z11, Z12, Z20, Z9)
	ROUND(Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z11, 12)
	SCHEDULE(Z12, Z13, Z21, Z10)
	ROUND(Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z12, 16)
	SCHEDULE(Z13, Z14, Z22, Z11)
	ROUND(Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z13, 20)
	SCHEDULE(Z14, Z15, Z23, Z12)
	ROUND(Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z14, 24)
	SCHEDULE(Z15, Z16, Z8, Z13)
	ROUND(Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z15, 28)
	SCHEDULE(Z16, Z17, Z9, Z14)
	ROUND(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z16, 32)
	SCHEDULE(Z17, Z18, Z10, Z15)
	ROUND(Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z17, 36)
	SCHEDULE(Z18, Z19, Z11, Z16)
	ROUND(Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z18, 40)
	SCHEDULE(Z19, Z20, Z12, Z17)
	ROUND(Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z19, 44)
	SCHEDULE(Z20, Z21, Z13, Z18)
	ROUND(Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z20, 48)
	SCHEDULE(Z21, Z22, Z14, Z19)
	ROUND(Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z21, 52)
	SCHEDULE(Z22, Z23, Z15, Z20)
	ROUND(Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z22, 56)
	SCHEDULE(Z23, Z8, Z16, Z21)
	ROUND(Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z23, 60)
	DECQ CX
	JNZ  more

	VPADDD    0(DI), Z0, Z0
	VMOVDQU32 Z0, 0(DI)
	VPADDD    64(DI), Z1, Z1
	VMOVDQU32 Z1, 64(DI)
	VPADDD    128(DI), Z2, Z2
	VMOVDQU32 Z2, 128(DI)
	VPADDD    192(DI), Z3, Z3
	VMOVDQU32 Z3, 192(DI)
	VPADDD    256(DI), Z4, Z4
	VMOVDQU32 Z4, 256(DI)
	VPADDD    320(DI), Z5, Z5
	VMOVDQU32 Z5, 320(DI)
	VPADDD    384(DI), Z6, Z6
	VMOVDQU32 Z6, 384(DI)
	VPADDD    448(DI), Z7, Z7
	VMOVDQU32 Z7, 448(DI)
	ADDQ $64, R9
	DECQ DX
	JNZ  block
	VZEROUPPER
	RET
