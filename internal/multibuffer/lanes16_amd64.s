#include "textflag.h"

// Sixteen lanes of 32 bits, in registers of 512.

#define WIDTH 64
#define S0 Z0
#define S1 Z1
#define S2 Z2
#define S3 Z3
#define S4 Z4
#define S5 Z5
#define S6 Z6
#define S7 Z7
#define W0 Z8
#define W1 Z9
#define W2 Z10
#define W3 Z11
#define W4 Z12
#define W5 Z13
#define W6 Z14
#define W7 Z15
#define W8 Z16
#define W9 Z17
#define W10 Z18
#define W11 Z19
#define W12 Z20
#define W13 Z21
#define W14 Z22
#define W15 Z23
#define T0 Z24
#define T1 Z25
#define T2 Z26
#define T3 Z27
#define T4 Z28
#define T5 Z29
#define ORDER Z31

// LOAD loads 16 bytes of lanes n, n+4, n+8 and n+12, R9 being how far lanes have come.
#define LOAD(at, n, z) \
	MOVQ            (8*n)(SI), R10; \
	MOVQ            (8*(n+4))(SI), R11; \
	MOVQ            (8*(n+8))(SI), R12; \
	MOVQ            (8*(n+12))(SI), R13; \
	VBROADCASTI32X4 at(R10)(R9*1), z; \
	VINSERTI32X4    $1, at(R11)(R9*1), z, z; \
	VINSERTI32X4    $2, at(R12)(R9*1), z, z; \
	VINSERTI32X4    $3, at(R13)(R9*1), z, z; \
	VPSHUFB         ORDER, z, z

// func compress16(state *uint32, input **byte, rounds *[64]uint32, blocks int)
TEXT ·compress16(SB), NOSPLIT, $0-32
#include "compress_amd64.h"
