package jobspec

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fieldpath"
)

// each calls do for each step of the sources, with its field: sources[0].transforms[1].tokenize.
func (j *Job) each(do func(source int, chain []Transform, step int, at string)) {
	for i, s := range j.Sources {
		for k, t := range s.Transforms {
			if t != nil {
				do(i, s.Transforms, k, fmt.Sprintf("sources[%d].transforms[%d].%s", i, k, t.Operator()))
			}
		}
	}
}

// chains checks the order of each source's steps.
func (c *checker) chains() {
	for i, s := range c.job.Sources {
		at := itemField("sources", i) + ".transforms"
		if len(s.Transforms) > 0 && c.sound(at) {
			c.chain(s.Transforms, at)
		}
	}
}

// chain walks the steps and remembers the operators that it met.
func (c *checker) chain(steps []Transform, at string) {
	var seen []string
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(seen, name) })
	}
	for k, t := range steps {
		o := OperatorOf(t.Operator())
		message, valid := "", ""
		switch {
		case !o.repeat && has(o.Name):
			message, valid = "is the second "+o.Name+" of the chain", "a chain has one: keep one of the two"
		case o.place != nil:
			message, valid = o.place(has)
		}
		if message != "" {
			c.error(itemField(at, k)+"."+o.Name, message, valid)
		}
		seen = slices.DeleteFunc(append(seen, o.Name), func(name string) bool { return slices.Contains(o.renews, name) })
	}
	if !has("tokens", "tokenize") {
		c.error(at, "no step gives tokens", "add tokenize: bytes or another encoding, or tokens with the column that holds them")
	}
}

// steps has each step check its own fields.
func (c *checker) steps() {
	c.job.each(func(_ int, chain []Transform, k int, at string) {
		if step, ok := chain[k].(checked); ok {
			step.check(c, at)
		}
	})
}

// kept checks the columns that sources keep.
func (c *checker) kept() {
	for i, s := range c.job.Sources {
		at := itemField("sources", i) + ".keep"
		c.columns(at, s.Keep)
		for k, path := range s.Keep {
			if first := slices.Index(s.Keep, path); first < k && c.sound(itemField(at, k)) {
				c.error(itemField(at, k), fmt.Sprintf("%s is also %s", quote(path), itemField("keep", first)), "name each column once")
			}
		}
	}
}

// columns checks a list of paths to fields.
func (c *checker) columns(at string, paths []string) {
	for k, path := range paths {
		c.column(itemField(at, k), path)
	}
}

// column checks a path to a field.
func (c *checker) column(at, path string) {
	if !c.sound(at) {
		return
	}
	if _, err := fieldpath.Parse(path); err != nil {
		c.error(at, err.Error(), "")
	}
}
