package cli

import (
	"fmt"
	"strconv"

	"github.com/hongbao-project/hongbao"
)

// amountFlag is a flag whose value is an amount in minor units.
type amountFlag hongbao.Amount

// Set implements pflag.Value.
func (a *amountFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > int64(hongbao.MaxAmount) {
		return fmt.Errorf("want a whole number of minor units from 0 to %d: 12.50 is 1250", hongbao.MaxAmount)
	}
	*a = amountFlag(n)
	return nil
}

// String implements pflag.Value.
func (a *amountFlag) String() string { return strconv.FormatInt(int64(*a), 10) }

// Type implements pflag.Value.
func (a *amountFlag) Type() string { return "int" }
