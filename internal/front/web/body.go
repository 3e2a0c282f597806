package web

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/flatjson"
)

// BodyCodes are the codes of problems with a body. The endpoint checks which fields its body may have.
var BodyCodes = []string{"content_type", "content_encoding", "body_too_large", "body_incomplete", "body_required",
	"invalid_json", "duplicate_field", "nested_value", "unknown_field"}

// Body describes the allowed body of a request.
type Body struct {
	Bytes int64
	// List is the one field that may have objects, up to Items; empty for none. A longer list gets the code TooMany.
	List    string
	Items   int
	TooMany string
	// Incomplete is the text for a caller whose body came too slowly or incompletely.
	Incomplete string
}

// ReadObject returns the body as one JSON object. Its error is a *Refusal.
func ReadObject(w http.ResponseWriter, r *http.Request, body Body) (flatjson.Object, error) {
	data, err := ReadBody(w, r, body)
	if err != nil {
		return nil, err
	}
	return ParseObject(data, body)
}

// ReadBody returns the unparsed body, if the request's headers say that it is plain JSON. Its error is a *Refusal.
func ReadBody(w http.ResponseWriter, r *http.Request, body Body) ([]byte, error) {
	if err := checkHead(r); err != nil {
		return nil, err
	}
	data, err := readAll(w, r, body.Bytes)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, &Refusal{Code: "body_too_large", Detail: fmt.Sprintf("a body has at most %d bytes", body.Bytes)}
	case err != nil:
		return nil, &Refusal{Code: "body_incomplete", Detail: body.Incomplete, Cause: err}
	}
	return data, nil
}

// shortBody is the longest body whose memory is allocated before it arrives.
const shortBody = 4 << 10

// readAll reads a body of at most this many bytes. The memory of a long body grows as bytes arrive: a caller that
// announces a body and sends none takes no memory.
func readAll(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > min(most, shortBody) {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	}
	data := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, data)
	return data, err
}

// ParseObject reads a body as one JSON object. Its error is a *Refusal.
func ParseObject(data []byte, body Body) (flatjson.Object, error) {
	o, err := flatjson.Parse(data, body.List, body.Items)
	if err != nil {
		return nil, &Refusal{Code: body.codeOf(err), Detail: "the body is invalid: " + err.Error()}
	}
	return o, nil
}

// parseCodes are the codes of flatjson's errors, except for a list that is too long.
var parseCodes = map[error]string{
	flatjson.ErrEmpty: "body_required", flatjson.ErrSyntax: "invalid_json", flatjson.ErrDuplicate: "duplicate_field",
	flatjson.ErrNested: "nested_value",
}

func (b *Body) codeOf(err error) string {
	for want, code := range parseCodes {
		if errors.Is(err, want) {
			return code
		}
	}
	return b.TooMany
}

// checkHead refuses a body that is not plain JSON.
func checkHead(r *http.Request) error {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" { // equal for nearly all requests
		media, params, err := mime.ParseMediaType(kind)
		charset := params["charset"]
		if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
			return &Refusal{Code: "content_type", Detail: "send Content-Type: application/json"}
		}
	}
	if r.Header.Get("Content-Encoding") != "" {
		return &Refusal{Code: "content_encoding", Detail: "send the body as it is, without Content-Encoding"}
	}
	return nil
}
