package stream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Decision says which person decided something, and why. Both texts are stored with the result of the decision.
type Decision struct {
	By  string `json:"by"`
	Why string `json:"why"`
}

// ByWorker is Decision.By of the decisions that workers make themselves.
const ByWorker = "hongbao"

// maxWhy limits the length of Decision.Why, in bytes.
const maxWhy = 1_000

// Check returns an error if By is not a valid id, or if Why is empty or too long.
func (d Decision) Check() error {
	err := hongbao.CheckID(d.By)
	if err != nil {
		err = fmt.Errorf("who decides, %.140q: %w", d.By, err)
	}
	if strings.TrimSpace(d.Why) == "" || len(d.Why) > maxWhy {
		err = errors.Join(err, fmt.Errorf("why has %d bytes: want a reason of 1 to %d", len(d.Why), maxWhy))
	}
	return err
}
