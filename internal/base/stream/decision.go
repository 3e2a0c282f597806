package stream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Decision is a person's decision: the person and the reason. Both are kept with the decided thing.
type Decision struct {
	By  string `json:"by"`
	Why string `json:"why"`
}

// maxWhy bounds Decision.Why, in bytes.
const maxWhy = 1_000

// Check reports what is wrong with a decision.
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
