// Package filter is the expression language of the filter step of a source:
// it compiles an expression such as
//
//	len(text) > 20 and meta.lang in ['en', 'de'] and not matches(url, r'^ftp:')
//
// once and evaluates it for each record without allocating. It owns the
// language (grammar, types, null rules, limits); it never reads a file and
// never decides what becomes of a record that is filtered out. Who writes a job reads of it
// in jobspec/filter.md, which is part of docs/operators.md.
//
// # Grammar
//
// From loose to tight binding:
//
//	or ||
//	and &&
//	not !                              one operand
//	== != < <= > >= in, not in         do not chain: write 1 < x and x < 5
//	+ -
//	* / %
//	-                                  one operand
//	literals, names, calls, ( )
//
// Literals are 12, 1.5, 2e-3, 'text', "text" (escapes \n \t \r \\ \' \"
// \uXXXX), r'text' (no escapes, for regular expressions), true, false, null and,
// to the right of in, a list of literals of one type: ['en', 'de'].
//
// The name text is the current text and tokens the current token ids, known
// after the step that makes them. Every other name is a column path such as
// lang, meta.lang or messages[].role. Backquotes take any path as it is, as in
// `weird name`, and always mean a column: `text` is the column text.
//
// # Functions
//
//	len(x)              bytes of a text (UTF-8, constant time), elements of a list
//	runes(x)            characters of a text (Unicode code points, linear time)
//	tokens()            number of tokens, the same as len(tokens)
//	lower(x)            text in lower case
//	startswith(x, y)    whether text x begins with text y
//	endswith(x, y)      whether text x ends with text y
//	contains(x, y)      whether text x contains text y, the same as y in x
//	matches(x, 're')    whether a part of text x matches the RE2 expression
//
// # Types
//
// Types are null, bool, int (64 bits), float (64 bits), string, bytes, list and
// tokens; bytes behave like a string. The types of columns are known only at run
// time, and nothing is converted silently: comparing a string with a number is
// an error of the record, and so is an int that overflows. An int and a float
// compare by exact value; strings compare by bytes. / always gives a float; %
// takes ints and has the sign of its left operand; dividing by zero is an error
// of the record.
//
// # Null
//
// A column that is absent or null is null. Null is equal to null only, so
// x != 'en' is true for a null x, and x == null asks for it. Arithmetic, len,
// runes and lower of null are null. Everything else that is asked of null is
// false: <, <=, >, >=, in (but null in ['a', null] is true), the functions that
// answer yes or no, and null itself as a condition. So len(title) > 3 drops
// records that have no title.
package filter
