package jinja_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/transform/jinja"
)

func Example() {
	template, err := jinja.Parse(`{% for m in messages %}
<{{ m.role }}>{% generation %}{{ m.content | trim }}{% endgeneration %}
{% endfor %}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, _ := jinja.Messages([]byte(`[{"role": "user", "content": " Hello "}, {"role": "assistant", "content": "Hi."}]`))
	text, generated, err := template.Render(map[string]jinja.Value{"messages": messages}, jinja.Options{})
	fmt.Println(text, generated, err)
	// Output: <user>Hello<assistant>Hi. [{6 11} {22 25}] <nil>
}
