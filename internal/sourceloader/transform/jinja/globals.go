package jinja

// globals are the functions that every template has.
var globals = map[string]function{
	"range": func(_ *state, args []Value, _ *Dict) Value {
		g := given{"range", args, nil}
		g.most(3)
		from, to, step := int64(0), g.integer(0, "", 0), g.integer(2, "", 1)
		if len(args) > 1 {
			from, to = to, g.integer(1, "", 0)
		}
		if step == 0 {
			panic(failf("the step of a range is 0"))
		}
		l := &List{}
		for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
			if len(l.Items) >= maxRange {
				panic(failf("a range of more than %d", maxRange))
			}
			l.Items = append(l.Items, i)
			if (i+step < i) != (step < 0) {
				break // it is beyond 64 bits
			}
		}
		return l
	},
	"namespace": func(_ *state, args []Value, kwargs *Dict) Value { return &namespace{dictOf(args, kwargs)} },
	"dict":      func(_ *state, args []Value, kwargs *Dict) Value { return dictOf(args, kwargs) },
	"raise_exception": func(s *state, args []Value, _ *Dict) Value {
		message := "without a reason"
		if len(args) > 0 {
			message = text(args[0])
		}
		panic(&Error{Line: s.line, Raised: true, err: failure(message)})
	},
	"strftime_now": func(s *state, args []Value, kwargs *Dict) Value {
		g := given{"strftime_now", args, kwargs}
		if s.opt.Date == nil {
			panic(failf("it asks for today's date, which would give other texts on another day: give a date"))
		}
		out, err := s.opt.Date.Format(g.text(0, "format"))
		if err != nil {
			panic(failf("strftime_now: %v", err))
		}
		return out
	},
}

// dictOf is Python's dict(): of a mapping or pairs, and names.
func dictOf(args []Value, kwargs *Dict) *Dict {
	d := NewDict()
	for _, v := range args {
		if from, is := v.(*Dict); is {
			for _, k := range from.keys {
				d.Set(k, from.values[k])
			}
			continue
		}
		for _, pair := range elements(v) {
			kv := elements(pair)
			if len(kv) != 2 || !hashable(kv[0]) {
				panic(failf("dict wants pairs of a key and a value"))
			}
			d.Set(kv[0], kv[1])
		}
	}
	for _, name := range kwargs.Keys() {
		v, _ := kwargs.Get(name)
		d.Set(name, v)
	}
	return d
}
