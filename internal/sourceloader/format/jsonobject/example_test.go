package jsonobject_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format/jsonobject"
)

func ExampleReader() {
	r, err := jsonobject.New([]string{"text", "tags[].name"}, 100)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Release()
	values, problem := r.Read([]byte(`{"text":"a \u006dill","tags":[{"name":"x"},{"name":"y"}]}`))
	fmt.Printf("%s %s%s %q\n", values[0].Bytes, values[1].List[0].Bytes, values[1].List[1].Bytes, problem)
	_, problem = r.Read([]byte(`{"text":`))
	fmt.Println(problem)
	// Output:
	// a mill xy ""
	// not valid JSON: it ends too soon: a value is expected here
}
