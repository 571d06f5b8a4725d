// Package page writes an preview.Report as one HTML page that needs nothing else:
// its charts are inline SVG made here, its style is in it, it has no script and
// refers to no other file or host. It follows the reader's light or dark setting.
//
// It owns how a report looks, and computes nothing that the report does not say.
package page
