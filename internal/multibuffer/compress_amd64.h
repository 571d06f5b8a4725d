// The body of a function that compresses blocks of SHA-256 in lanes of 32 bits, compress of lanes_amd64.go, in names that
// each width of registers gives its own:
// S0 to S7 are the state, W0 to W15 the last sixteen words of the message schedule, T0 to T5 scratch, ORDER the order of bytes
// in a word, LOAD what loads words of all lanes, and WIDTH the bytes of a register.
//
// Other names are those of FIPS 180-4, section 6.2.2.

// ROUND adds to h what the round adds, and h to d; w is the word of the schedule, and k the place of the constant.
#define ROUND(a, b, c, d, e, f, g, h, w, k) \
	VPADDD.BCST k(BX), w, T4; \
	VMOVDQA32   e, T3; \
	VPTERNLOGD  $0xCA, g, f, T3; \
	VPADDD      T4, h, h; \
	VPRORD      $6, e, T0; \
	VPRORD      $11, e, T1; \
	VPRORD      $25, e, T2; \
	VPADDD      T3, h, h; \
	VPTERNLOGD  $0x96, T1, T2, T0; \
	VPADDD      T0, h, h; \
	VPADDD      h, d, d; \
	VMOVDQA32   a, T3; \
	VPTERNLOGD  $0xE8, c, b, T3; \
	VPRORD      $2, a, T0; \
	VPRORD      $13, a, T1; \
	VPRORD      $22, a, T2; \
	VPADDD      T3, h, h; \
	VPTERNLOGD  $0x96, T1, T2, T0; \
	VPADDD      T0, h, h

// SCHEDULE makes the word sixteen rounds on of w0: w1, w9 and w14 are 1, 9 and 14 words on.
#define SCHEDULE(w0, w1, w9, w14) \
	VPADDD     w9, w0, w0; \
	VPRORD     $7, w1, T0; \
	VPRORD     $18, w1, T1; \
	VPSRLD     $3, w1, T2; \
	VPRORD     $17, w14, T3; \
	VPRORD     $19, w14, T4; \
	VPSRLD     $10, w14, T5; \
	VPTERNLOGD $0x96, T1, T2, T0; \
	VPTERNLOGD $0x96, T4, T5, T3; \
	VPADDD     T0, w0, w0; \
	VPADDD     T3, w0, w0

// WORDS loads the four words of all lanes that stand 16 bytes wide at a place.
#define WORDS(at, w0, w1, w2, w3) \
	LOAD(at, 0, w0); \
	LOAD(at, 1, w1); \
	LOAD(at, 2, w2); \
	LOAD(at, 3, w3); \
	VPUNPCKLDQ  w1, w0, T0; \
	VPUNPCKHDQ  w1, w0, T1; \
	VPUNPCKLDQ  w3, w2, T2; \
	VPUNPCKHDQ  w3, w2, T3; \
	VPUNPCKLQDQ T2, T0, w0; \
	VPUNPCKHQDQ T2, T0, w1; \
	VPUNPCKLQDQ T3, T1, w2; \
	VPUNPCKHQDQ T3, T1, w3

	MOVQ            state+0(FP), DI
	MOVQ            input+8(FP), SI
	MOVQ            rounds+16(FP), R8
	MOVQ            blocks+24(FP), DX
	XORL            R9, R9
	VBROADCASTI32X4 bigEndian<>(SB), ORDER
	VMOVDQU32       (0*WIDTH)(DI), S0
	VMOVDQU32       (1*WIDTH)(DI), S1
	VMOVDQU32       (2*WIDTH)(DI), S2
	VMOVDQU32       (3*WIDTH)(DI), S3
	VMOVDQU32       (4*WIDTH)(DI), S4
	VMOVDQU32       (5*WIDTH)(DI), S5
	VMOVDQU32       (6*WIDTH)(DI), S6
	VMOVDQU32       (7*WIDTH)(DI), S7

block:
	MOVQ R8, BX
	WORDS(0, W0, W1, W2, W3)
	WORDS(16, W4, W5, W6, W7)
	WORDS(32, W8, W9, W10, W11)
	WORDS(48, W12, W13, W14, W15)
	ROUND(S0, S1, S2, S3, S4, S5, S6, S7, W0, 0)
	ROUND(S7, S0, S1, S2, S3, S4, S5, S6, W1, 4)
	ROUND(S6, S7, S0, S1, S2, S3, S4, S5, W2, 8)
	ROUND(S5, S6, S7, S0, S1, S2, S3, S4, W3, 12)
	ROUND(S4, S5, S6, S7, S0, S1, S2, S3, W4, 16)
	ROUND(S3, S4, S5, S6, S7, S0, S1, S2, W5, 20)
	ROUND(S2, S3, S4, S5, S6, S7, S0, S1, W6, 24)
	ROUND(S1, S2, S3, S4, S5, S6, S7, S0, W7, 28)
	ROUND(S0, S1, S2, S3, S4, S5, S6, S7, W8, 32)
	ROUND(S7, S0, S1, S2, S3, S4, S5, S6, W9, 36)
	ROUND(S6, S7, S0, S1, S2, S3, S4, S5, W10, 40)
	ROUND(S5, S6, S7, S0, S1, S2, S3, S4, W11, 44)
	ROUND(S4, S5, S6, S7, S0, S1, S2, S3, W12, 48)
	ROUND(S3, S4, S5, S6, S7, S0, S1, S2, W13, 52)
	ROUND(S2, S3, S4, S5, S6, S7, S0, S1, W14, 56)
	ROUND(S1, S2, S3, S4, S5, S6, S7, S0, W15, 60)
	MOVQ $3, CX

more:
	ADDQ $64, BX
	SCHEDULE(W0, W1, W9, W14)
	ROUND(S0, S1, S2, S3, S4, S5, S6, S7, W0, 0)
	SCHEDULE(W1, W2, W10, W15)
	ROUND(S7, S0, S1, S2, S3, S4, S5, S6, W1, 4)
	SCHEDULE(W2, W3, W11, W0)
	ROUND(S6, S7, S0, S1, S2, S3, S4, S5, W2, 8)
	SCHEDULE(W3, W4, W12, W1)
	ROUND(S5, S6, S7, S0, S1, S2, S3, S4, W3, 12)
	SCHEDULE(W4, W5, W13, W2)
	ROUND(S4, S5, S6, S7, S0, S1, S2, S3, W4, 16)
	SCHEDULE(W5, W6, W14, W3)
	ROUND(S3, S4, S5, S6, S7, S0, S1, S2, W5, 20)
	SCHEDULE(W6, W7, W15, W4)
	ROUND(S2, S3, S4, S5, S6, S7, S0, S1, W6, 24)
	SCHEDULE(W7, W8, W0, W5)
	ROUND(S1, S2, S3, S4, S5, S6, S7, S0, W7, 28)
	SCHEDULE(W8, W9, W1, W6)
	ROUND(S0, S1, S2, S3, S4, S5, S6, S7, W8, 32)
	SCHEDULE(W9, W10, W2, W7)
	ROUND(S7, S0, S1, S2, S3, S4, S5, S6, W9, 36)
	SCHEDULE(W10, W11, W3, W8)
	ROUND(S6, S7, S0, S1, S2, S3, S4, S5, W10, 40)
	SCHEDULE(W11, W12, W4, W9)
	ROUND(S5, S6, S7, S0, S1, S2, S3, S4, W11, 44)
	SCHEDULE(W12, W13, W5, W10)
	ROUND(S4, S5, S6, S7, S0, S1, S2, S3, W12, 48)
	SCHEDULE(W13, W14, W6, W11)
	ROUND(S3, S4, S5, S6, S7, S0, S1, S2, W13, 52)
	SCHEDULE(W14, W15, W7, W12)
	ROUND(S2, S3, S4, S5, S6, S7, S0, S1, W14, 56)
	SCHEDULE(W15, W0, W8, W13)
	ROUND(S1, S2, S3, S4, S5, S6, S7, S0, W15, 60)
	DECQ CX
	JNZ  more
	VPADDD          (0*WIDTH)(DI), S0, S0
	VMOVDQU32       S0, (0*WIDTH)(DI)
	VPADDD          (1*WIDTH)(DI), S1, S1
	VMOVDQU32       S1, (1*WIDTH)(DI)
	VPADDD          (2*WIDTH)(DI), S2, S2
	VMOVDQU32       S2, (2*WIDTH)(DI)
	VPADDD          (3*WIDTH)(DI), S3, S3
	VMOVDQU32       S3, (3*WIDTH)(DI)
	VPADDD          (4*WIDTH)(DI), S4, S4
	VMOVDQU32       S4, (4*WIDTH)(DI)
	VPADDD          (5*WIDTH)(DI), S5, S5
	VMOVDQU32       S5, (5*WIDTH)(DI)
	VPADDD          (6*WIDTH)(DI), S6, S6
	VMOVDQU32       S6, (6*WIDTH)(DI)
	VPADDD          (7*WIDTH)(DI), S7, S7
	VMOVDQU32       S7, (7*WIDTH)(DI)
	ADDQ            $64, R9
	DECQ            DX
	JNZ             block
	VZEROUPPER
	RET

DATA bigEndian<>+0(SB)/8, $0x0405060700010203
DATA bigEndian<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL bigEndian<>(SB), RODATA, $16
