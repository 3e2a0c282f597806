package postgres

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	answer := func(severity, code string) error { return &pgconn.PgError{Severity: severity, Code: code} }
	for name, c := range map[string]struct {
		err    error
		sent   bool
		class  hongbao.Class
		outage bool
		mark   error
	}{
		"lost before COMMIT":       {io.ErrUnexpectedEOF, false, hongbao.ClassTransient, true, nil},
		"lost after COMMIT":        {io.ErrUnexpectedEOF, true, hongbao.ClassUnknown, true, nil},
		"timeout after COMMIT":     {context.DeadlineExceeded, true, hongbao.ClassUnknown, true, nil},
		"admin shutdown before":    {answer("FATAL", "57P01"), false, hongbao.ClassTransient, true, nil},
		"admin shutdown after":     {answer("FATAL", "57P01"), true, hongbao.ClassUnknown, true, nil},
		"crash of another backend": {answer("FATAL", "57P02"), true, hongbao.ClassUnknown, true, nil},
		"too many connections":     {answer("FATAL", "53300"), false, hongbao.ClassTransient, true, nil},
		"disk full":                {answer("ERROR", "53100"), true, hongbao.ClassTransient, true, nil},
		"I/O error":                {answer("ERROR", "58030"), false, hongbao.ClassTransient, true, nil},
		"read-only":                {answer("ERROR", "25006"), false, hongbao.ClassTransient, true, nil},
		"statement timeout":        {answer("ERROR", "57014"), true, hongbao.ClassTransient, true, nil},
		"no such table":            {answer("ERROR", "42P01"), false, hongbao.ClassTransient, true, nil},
		"wrong password":           {answer("FATAL", "28P01"), false, hongbao.ClassTransient, true, nil},
		"serialization":            {answer("ERROR", "40001"), true, hongbao.ClassTransient, true, db.ErrAgain},
		"deadlock":                 {answer("ERROR", "40P01"), true, hongbao.ClassTransient, true, db.ErrAgain},
		"lock timeout":             {answer("ERROR", "55P03"), false, hongbao.ClassTransient, true, db.ErrAgain},
		"check":                    {answer("ERROR", "23514"), true, hongbao.ClassPermanent, false, db.ErrOverdraw},
		"out of range":             {answer("ERROR", "22003"), true, hongbao.ClassPermanent, false, nil},
		"row deleted by hand":      {answer("ERROR", "23503"), true, hongbao.ClassBroken, false, nil},
		"an unknown code":          {answer("ERROR", "ZZ000"), false, hongbao.ClassTransient, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := classify(c.err, c.sent)
			require.Equal(t, c.class, hongbao.ClassOf(err))
			require.Equal(t, c.outage, hongbao.IsOutage(err))
			require.ErrorIs(t, err, c.err)
			for _, mark := range []error{db.ErrAgain, db.ErrOverdraw} {
				require.Equal(t, mark == c.mark, errors.Is(err, mark))
			}
		})
	}
}
