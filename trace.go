package hongbao

import (
	"errors"
	"strings"
)

// checkTraceparent returns an error unless the text is a traceparent of W3C Trace Context, section 3.2: version, trace
// id, parent id and flags, in 2, 32, 16 and 2 lowercase hex digits, separated by "-". Only versions above 00 may have
// further fields.
func checkTraceparent(s string) error {
	if err := CheckID(s); err != nil {
		return err
	}
	const size = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < size || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return errors.New("want version-traceid-parentid-flags, with 2, 32, 16 and 2 hex digits")
	}
	version, trace, parent, flags, rest := s[:2], s[3:35], s[36:52], s[53:55], s[size:]
	switch {
	case strings.Trim(version+trace+parent+flags, "0123456789abcdef") != "":
		return errors.New("want lowercase hex digits")
	case version == "ff":
		return errors.New("version ff is forbidden")
	case strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "":
		return errors.New("a trace id or parent id of only zeros is not valid")
	case version == "00" && rest != "" || rest != "" && rest[0] != '-':
		return errors.New("something follows the flags")
	}
	return nil
}
