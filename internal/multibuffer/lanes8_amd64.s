#include "textflag.h"

// Eight lanes of 32 bits, in registers of 256.

#define WIDTH 32
#define S0 Y0
#define S1 Y1
#define S2 Y2
#define S3 Y3
#define S4 Y4
#define S5 Y5
#define S6 Y6
#define S7 Y7
#define W0 Y8
#define W1 Y9
#define W2 Y10
#define W3 Y11
#define W4 Y12
#define W5 Y13
#define W6 Y14
#define W7 Y15
#define W8 Y16
#define W9 Y17
#define W10 Y18
#define W11 Y19
#define W12 Y20
#define W13 Y21
#define W14 Y22
#define W15 Y23
#define T0 Y24
#define T1 Y25
#define T2 Y26
#define T3 Y27
#define T4 Y28
#define T5 Y29
#define ORDER Y31

// LOAD loads 16 bytes of lanes n and n+4, R9 being how far lanes have come.
#define LOAD(at, n, y) \
	MOVQ            (8*n)(SI), R10; \
	MOVQ            (8*(n+4))(SI), R11; \
	VBROADCASTI32X4 at(R10)(R9*1), y; \
	VINSERTI32X4    $1, at(R11)(R9*1), y, y; \
	VPSHUFB         ORDER, y, y

// func compress8(state *uint32, input **byte, rounds *[64]uint32, blocks int)
TEXT ·compress8(SB), NOSPLIT, $0-32
#include "compress_amd64.h"
