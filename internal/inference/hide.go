package inference

import (
	"encoding/json"
	"html"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shortSecret is the length from which on a secret is taken out wherever it stands. A shorter token, such as EMPTY for a server
// that asks for none, may be part of any word: it is taken out where it stands alone. A shorter value of a query is no secret.
const shortSecret = 8

// hide takes the token and what the URL's query says out of what a server said, which may repeat what it was sent.
func (s *server) hide(said string) string {
	secrets := slices.Clone(s.secrets)
	token := ""
	if s.tokenEnv != "" {
		token = os.Getenv(s.tokenEnv)
	}
	if len(token) >= shortSecret {
		secrets = append(secrets, token)
	}
	var forms []string
	for _, secret := range secrets {
		forms = append(forms, spellings(secret)...)
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form, "***")
	}
	said = strings.NewReplacer(pairs...).Replace(said)
	if token != "" && len(token) < shortSecret {
		said = alone(token).ReplaceAllLiteralString(said, "***")
	}
	return said
}

// spellings are the forms in which a server may repeat a secret: as it is, in JSON, in a URL, and in HTML.
func spellings(secret string) []string {
	quoted, _ := json.Marshal(secret)
	return []string{
		secret, string(quoted[1 : len(quoted)-1]), strings.ReplaceAll(secret, "/", `\/`),
		url.QueryEscape(secret), url.PathEscape(secret), (&url.URL{Path: secret}).EscapedPath(), html.EscapeString(secret),
	}
}

// inQuery are the secrets in the query of a URL: the query itself, where it stands in a URL, and its values, as they stand there
// and as they are meant.
func inQuery(query string) (secrets []string) {
	if query == "" {
		return nil
	}
	secrets = append(secrets, "?"+query)
	for part := range strings.SplitSeq(query, "&") {
		_, value, named := strings.Cut(part, "=")
		if !named {
			value = part
		}
		if len(value) < shortSecret {
			continue
		}
		secrets = append(secrets, value)
		if meant, err := url.QueryUnescape(value); err == nil && len(meant) >= shortSecret {
			secrets = append(secrets, meant)
		}
	}
	return secrets
}

// alone matches a token that is no part of a longer word.
func alone(token string) *regexp.Regexp {
	letter := func(c byte) bool {
		return c == '_' || c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)))
	}
	before, after := "", ""
	if letter(token[0]) {
		before = `\b`
	}
	if letter(token[len(token)-1]) {
		after = `\b`
	}
	return regexp.MustCompile(before + regexp.QuoteMeta(token) + after)
}
