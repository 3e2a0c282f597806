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

// BodyCodes are the error codes for an invalid body. The endpoint itself checks the names of the fields.
var BodyCodes = []string{"content_type", "content_encoding", "body_too_large", "body_incomplete", "body_required",
	"invalid_json", "duplicate_field", "nested_value", "unknown_field"}

// Body describes what the body of a request may contain.
type Body struct {
	Bytes int64
	// List is the only field that may have a list of objects, of at most Items objects; "" if no field may. TooMany
	// is the error code for a longer list.
	List    string
	Items   int
	TooMany string
	// Incomplete is the advice to a caller whose body did not arrive completely in time.
	Incomplete string
}

// ReadObject reads the body as one JSON object. Its error is a *Refusal.
func ReadObject(w http.ResponseWriter, r *http.Request, body Body) (flatjson.Object, error) {
	data, err := ReadBody(w, r, body)
	if err != nil {
		return nil, err
	}
	return ParseObject(data, body)
}

// ReadBody reads the body without parsing it, if the headers declare plain JSON. Its error is a *Refusal.
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

// shortBody is the maximum length for which memory is allocated before the body arrives.
const shortBody = 4 << 10

// readAll reads a body of at most most bytes. The buffer for a longer body grows as bytes arrive. So a caller
// that announces a body and sends none takes no memory.
func readAll(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > min(most, shortBody) {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	}
	data := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, data)
	return data, err
}

// ParseObject parses a body as one JSON object. Its error is a *Refusal.
func ParseObject(data []byte, body Body) (flatjson.Object, error) {
	o, err := flatjson.Parse(data, body.List, body.Items)
	if err != nil {
		return nil, &Refusal{Code: body.codeOf(err), Detail: "the body is invalid: " + err.Error()}
	}
	return o, nil
}

// parseCodes maps the errors of flatjson to error codes, except the error for a list that is too long.
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

// checkHead returns an error unless the headers declare plain JSON.
func checkHead(r *http.Request) error {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" { // nearly all requests skip the parser
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
