// Package cost says how much work a sample is: models that turn the counts of a
// sample (tokens, patches, images) into a whole number of cost units, which the
// planner balances over ranks and microbatches. It owns the models, the
// expression language for costs and the fit of a model to measured step times;
// it never sees a sample's bytes and never decides where a sample goes.
//
// A cost is an int64 of at least 0, computed in integers: it is equal on every
// machine, so plans are too. What does not fit is an error, never a wrong number.
//
// # Models
//
// Parse reads a model from one line of text: a name, a name with parameters, or
// an expression. s is the number of tokens, p that of patches, L, h and a the
// parameters layers, hidden and active (parameters of a layer that a token
// uses, divided by h squared; 12 for a dense layer).
//
//	linear(a=1)                             a s
//	quadratic(a=24576, b=1)                 a s + b s²; these are the defaults, for a 7B model
//	memory(bytes_per_token=, fixed_bytes=0) bytes_per_token s + fixed_bytes
//	transformer(layers=, hidden=, active=12)  L (2 a h² s + 2 h s²), causal attention
//	encoder(layers=, hidden=), or vit(...)    L (24 h² p + 4 h p²), of one image
//	llama-12b, tmoe-25b, mixtral-8x7b, vit-1b, vit-2b   these with known parameters
//
// linear and quadratic take of=patches or of=images to count these and not tokens.
//
// The unit of transformer and encoder is 2^20 floating point operations of the
// forward pass, rounded up: a token of llama-12b is about 22,000 units, and
// 300,000 samples of 128k tokens of a model of 400B parameters (126 layers of
// 16384) sum to less than 2^56. The others are exact.
//
// An encoder attends within an image only. So its model is of one image, a Sample
// with Patches set; a sample of several images costs the sum over its images, and
// asking for it as a whole is an error.
//
// # Expressions
//
// The language is that of the filter step, over numbers. From loose to tight:
//
//	or ||
//	and &&
//	not !                  one operand
//	== != < <= > >=        do not chain: write 1 < tokens and tokens < 5
//	+ -
//	* / %
//	-                      one operand
//	literals, fields, calls, ( )
//
// The fields are tokens, patches and images. The functions are min(x, y, ...),
// max(x, y, ...), abs(x), sqrt(x), the largest integer whose square is not above
// x, and if(condition, then, else), which evaluates only the branch it takes.
// and and or do not evaluate their right side if the left one decides.
//
// Numbers are exact decimals. A literal such as 0.25 or 2e-3 has decimals, and a
// result has as many as it may need, known before any sample is seen: the larger
// count of both sides for + - %, min, max and if, their sum for *, none for /
// and sqrt. / drops the fraction (toward zero) and % has the sign of its left
// operand; 3 / 2 of two constants is refused, since 1.5 was meant. The cost is the
// whole expression's value, rounded up. A number of d decimals is held as a 64-bit
// integer of 10^-d; an expression needs at most MaxDecimals of them.
//
// An evaluation that leaves this range, divides by zero, takes the root of a
// negative number or ends below 0 is an error that names the place in the
// expression and the sample's fields.
//
// # Identity
//
// Model.String is canonical: it does not depend on spaces, redundant parentheses, the
// name of a preset or omitted defaults, and Parse of it gives the same model. It
// is meant to be part of a job's identity.
package cost
