package jobspec

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/millrace-data/millrace/internal/fieldpath"
)

// Call sends records to a model server, and takes columns of its answers.
type Call struct {
	URL      string       // http or https; requests are posted to it
	Request  string       // JSON whose strings are templates over columns
	Give     []CallColumn // what answers give
	Rows     int          // records of a request at most
	Rate     int          // requests a second of a loader; 0 = no limit
	Parallel int          // requests of a loader at a time
	Timeout  int          // seconds for one request
	TokenEnv string       // environment variable of a bearer token; "" = none is sent
	Answers  string       // folder or bucket that keeps the first answer to each record
	Version  string       // of the model: another one is asked again
}

// CallColumn is a column of an answer.
type CallColumn struct {
	Column string // its name
	Type   string // text, int, float, bool
	At     string // its place in the answer: data[].score
}

var callOperator = Operator{
	Name:    "call",
	Doc:     "Sends the record to a model server, such as one that scores or rewrites texts, and takes columns of its answer. The first answer is recorded, and counts from then on. Before the tokens are made; see [transforms-call.md](transforms-call.md).",
	Example: "[{call: {url: 'http://scorer:8000/score', request: '{\"inputs\": [\"{text}\"]}', rows: 32, answers: answers, give: {column: quality, type: float, at: 'scores[].value'}}}, {filter: quality > 0.5}, {tokenize: bytes}]",
	Takes:   []string{"the columns that `request` names"}, Gives: []string{"the columns of `give`"},
	Records: Keeps, Worker: true,
	Rules: "Before the tokens are made, and before `chat`. The request is JSON; one list of an answer at most has an element for each record.",

	step: (*Call)(nil), value: field{kind: objectKind, object: &callObject}, repeat: true, renews: []string{"text"},
	place: pythonOperator.place,
}

var callObject = object{title: "call", fields: []field{
	{key: "url", name: "URL", kind: textKind, required: true, free: freeMachine,
		doc: "Where requests are posted to: `http://HOST:PORT/PATH`, or https."},
	{key: "request", name: "Request", kind: textKind, required: true,
		doc: "The request, as JSON whose strings are templates over columns: `{\"inputs\": [\"{text}\"]}`. A string that is one column and nothing else becomes that value as it is, be it a number or a list. With `rows` above 1, a list with one element stands for all records of the request."},
	{key: "give", name: "Give", kind: objectKind, list: true, one: true, required: true, object: &callColumnObject,
		doc: "The columns that answers give."},
	{key: "answers", name: "Answers", kind: textKind, required: true, free: freeAnswers,
		doc: "The folder, relative to the spec's, or `s3://BUCKET/PREFIX`, that keeps the first answer to each record. All loaders, and whoever verifies the job, need the same one."},
	{key: "rows", name: "Rows", kind: countKind, def: 1, min: 1, max: 1024, free: freeBatch,
		doc: "Records that one request is about, at most."},
	{key: "rate", name: "Rate", kind: countKind, max: 1_000_000, free: freeBudget,
		doc: "Requests a second of one loader, at most; 0 sets no limit."},
	{key: "parallel", name: "Parallel", kind: countKind, def: 8, min: 1, max: 1024, free: freeBudget,
		doc: "Requests of one loader under way at a time."},
	{key: "timeout", name: "Timeout", kind: countKind, def: 60, min: 1, max: 86_400, free: freeBudget,
		doc: "Seconds that a request may take, after which it is sent again."},
	{key: "token_env", name: "TokenEnv", kind: textKind, empty: true, auto: "no token is sent", free: freeMachine,
		doc: "The environment variable, on the machines of the loaders, with the bearer token that the server wants."},
	{key: "version", name: "Version", kind: textKind, empty: true,
		doc: "Names what answers, such as a model and its revision. Another version asks again, and is another job."},
}}

var callColumnObject = object{title: "A column of an answer", fields: []field{
	{key: "column", name: "Column", kind: textKind, required: true,
		doc: "Its name, for the steps that follow; it takes the place of a column of that name."},
	{key: "type", name: "Type", kind: textKind, def: "text", enum: []string{"text", "int", "float", "bool"},
		doc: "What its values are. An answer with another value makes the record a bad one."},
	{key: "at", name: "At", kind: textKind, required: true,
		doc: "Where it is in the answer: `score`, or `data[].score` if the answer has a list with an element for each record of the request."},
}}

// Operator implements Transform.
func (*Call) Operator() string { return callOperator.Name }

// Words implements Transform.
func (s *Call) Words() string {
	address, _, _ := strings.Cut(s.URL, "?") // a query may be secret
	return "answered by " + address
}

func (s *Call) check(c *checker, at string) {
	if u, err := url.Parse(s.URL); c.sound(at+".url") && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		c.error(at+".url", "this is not the address of a model server", "valid is http://HOST:PORT/PATH or https://HOST/PATH; a token comes from the environment, see token_env")
	}
	if c.sound(at+".request") && !json.Valid([]byte(s.Request)) {
		c.error(at+".request", "it is not JSON", `valid is JSON whose strings are templates over columns: {"inputs": ["{text}"]}`)
	}
	for i, g := range s.Give {
		field := fmt.Sprintf("%s.give[%d].at", at, i)
		path, err := fieldpath.Parse(g.At)
		lists := strings.Count(path.String(), "[]")
		switch {
		case !c.sound(field):
		case err != nil:
			c.error(field, err.Error(), "valid is score, or data[].score")
		case lists > 1 || lists == 0 && s.Rows > 1:
			c.error(field, fmt.Sprintf("%q has %d of []", g.At, lists), "with rows above 1, one list of the answer has an element for each record: data[].score; with rows: 1, one or none")
		}
	}
}

func (s *Call) resolve(j *Job) Transform {
	own := *s
	own.Answers = j.Resolve(s.Answers)
	return &own
}

// programs are the folder of the ledger: a source that joins may write there only if it is under a root.
func (s *Call) programs([]Transform) []string {
	return []string{storeName(s.Answers)}
}

// server is the part of a URL that says who is asked.
func (s *Call) server() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return s.URL
	}
	return u.Scheme + "://" + u.Host
}
