package jobspec

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// YAML prints the job back with all defaults filled in. Parse of the result,
// with the same folder, gives an equal job, whose steps are all written (Source.Implied).
func (j *Job) YAML() []byte {
	p := printer{}
	p.object(&specObject, reflect.ValueOf(j).Elem(), 0)
	return p.Bytes()
}

// Identity is the SHA-256 of the canonical form (YAML, fields in declared
// order) of what determines the bytes of the global batch. It covers the seed,
// the sources (in order, files and columns as written after ${VAR} expansion,
// transforms, long, shuffle, limit), the mix (weights normalised), and from the
// batch the row length, rows and packing, from the output format and pad_id.
//
// It leaves out, and so lets a running job change: the name, the topology,
// the strategy but for what it says of the contents of rows,
// microbatch_size, cp_slicing and broadcast_at, resources, bad_records and the
// folder of the spec. The reference page says why for each. What the files hold
// is the manifest's to cover.
func (j *Job) Identity() [32]byte {
	p := printer{identity: true}
	p.WriteString("# millrace job identity, version 1\n")
	p.object(&specObject, reflect.ValueOf(j).Elem(), 0)
	p.WriteString(j.strategyIdentity())
	return sha256.Sum256(p.Bytes())
}

// recipe are the fields of a source that decide what each record becomes, by itself.
var recipe = []string{"format", "chunk_bytes", "transforms", "keep", "max_record", "max_elements"}

// Recipe is the canonical form of what decides the samples of the source's records before its rule
// for long ones: the rest says where they come from, in which order, and which of them a job takes.
// Paths are as they were written.
func (s *Source) Recipe() []byte {
	o := object{title: sourceObject.title}
	for _, key := range recipe {
		o.fields = append(o.fields, *sourceObject.field(key))
	}
	p := printer{identity: true}
	p.object(&o, reflect.ValueOf(s).Elem(), 0)
	return p.Bytes()
}

// printer writes block-style YAML.
type printer struct {
	bytes.Buffer
	identity bool // leave out the free fields
}

func (p *printer) indent(depth int) { p.WriteString(strings.Repeat("  ", depth)) }

// object prints the fields of a struct, one or more lines each.
func (p *printer) object(o *object, v reflect.Value, depth int) {
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	for i := range o.fields {
		f := &o.fields[i]
		if f.name == "" && f.step == nil || p.identity && f.free != "" {
			continue
		}
		value := v
		if f.step == nil {
			value = v.FieldByName(f.name)
		} else if v.Type() != f.step {
			continue
		}
		if absent(f, o, value) {
			continue
		}
		p.indent(depth)
		p.WriteString(f.key + ":")
		p.value(f, value, depth)
	}
}

// absent reports whether a value is what leaving the field out means.
func absent(f *field, o *object, v reflect.Value) bool {
	switch {
	case o.choice, f.kind == textKind && !f.list, (f.kind == countKind || f.kind == bytesKind || f.kind == flagKind) && f.empty:
		return v.IsZero()
	case f.list:
		return v.Len() == 0
	case v.Kind() == reflect.Pointer:
		return v.IsNil()
	}
	return false
}

// value prints what comes after "key:".
func (p *printer) value(f *field, v reflect.Value, depth int) {
	switch {
	case f.list:
		p.WriteByte('\n')
		for i := range v.Len() {
			p.item(f, v.Index(i), depth+1)
		}
	case f.kind == objectKind:
		p.WriteByte('\n')
		p.object(f.object, v, depth+1)
	case f.kind == weightsKind:
		p.WriteByte('\n')
		weights := v.Interface().(map[string]float64)
		for _, name := range slices.Sorted(maps.Keys(weights)) {
			p.indent(depth + 1)
			fmt.Fprintf(p, "%s: %s\n", quoteYAML(name), strconv.FormatFloat(weights[name], 'g', -1, 64))
		}
	default:
		fmt.Fprintf(p, " %s\n", scalarText(f, v))
	}
}

// item prints one element of a list; a group starts on the line of its dash.
func (p *printer) item(f *field, v reflect.Value, depth int) {
	p.indent(depth)
	if f.kind != objectKind {
		fmt.Fprintf(p, "- %s\n", scalarText(f, v))
		return
	}
	inner := printer{identity: p.identity}
	inner.object(f.object, v, depth+1)
	p.WriteString("- ")
	p.Write(bytes.TrimLeft(inner.Bytes(), " "))
}

func scalarText(f *field, v reflect.Value) string {
	switch {
	case f.kind == textKind:
		return quoteYAML(escapeDollars(v.String()))
	case f.kind == flagKind:
		return strconv.FormatBool(v.Bool())
	case f.kind == bytesKind:
		return sizeText(v.Int())
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	}
	return strconv.FormatInt(v.Int(), 10)
}

var plainText = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// quoteYAML writes a text as YAML: bare if no reader can take it for anything
// else, in double quotes otherwise.
func quoteYAML(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
	default:
		if plainText.MatchString(s) {
			return s
		}
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
