package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	answer := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	for name, c := range map[string]struct {
		err    error
		sent   bool
		class  hongbao.Class
		outage bool
		mark   error
	}{
		"lost before COMMIT":     {mysql.ErrInvalidConn, false, hongbao.ClassTransient, true, nil},
		"lost after COMMIT":      {mysql.ErrInvalidConn, true, hongbao.ClassUnknown, true, nil},
		"reset after COMMIT":     {io.ErrUnexpectedEOF, true, hongbao.ClassUnknown, true, nil},
		"timeout after COMMIT":   {context.DeadlineExceeded, true, hongbao.ClassUnknown, true, nil},
		"COMMIT did not leave":   {driver.ErrBadConn, true, hongbao.ClassTransient, true, nil},
		"shutdown before":        {answer(1053), false, hongbao.ClassTransient, true, nil},
		"shutdown after":         {answer(1053), true, hongbao.ClassUnknown, true, nil},
		"killed":                 {answer(1927), true, hongbao.ClassUnknown, true, nil},
		"interrupted":            {answer(1317), true, hongbao.ClassUnknown, true, nil},
		"statement timeout":      {answer(1969), false, hongbao.ClassTransient, true, nil},
		"error during COMMIT":    {answer(1180), true, hongbao.ClassUnknown, true, nil},
		"too many connections":   {answer(1040), false, hongbao.ClassTransient, true, nil},
		"disk full":              {answer(1021), false, hongbao.ClassTransient, true, nil},
		"table full":             {answer(1114), false, hongbao.ClassTransient, true, nil},
		"read-only":              {answer(1290), false, hongbao.ClassTransient, true, nil},
		"read-only transaction":  {answer(1792), false, hongbao.ClassTransient, true, nil},
		"no such table":          {answer(1146), false, hongbao.ClassTransient, true, nil},
		"wrong password":         {answer(1045), false, hongbao.ClassTransient, true, nil},
		"deadlock":               {answer(1213), true, hongbao.ClassTransient, true, db.ErrAgain},
		"lock timeout":           {answer(1205), true, hongbao.ClassTransient, true, db.ErrAgain},
		"a batch id drawn twice": {answer(1062), true, hongbao.ClassTransient, true, db.ErrAgain},
		"check on MySQL":         {answer(3819), true, hongbao.ClassPermanent, false, db.ErrOverdraw},
		"check on MariaDB":       {answer(4025), true, hongbao.ClassPermanent, false, db.ErrOverdraw},
		"out of range":           {answer(1264), true, hongbao.ClassPermanent, false, nil},
		"overflow":               {answer(1690), true, hongbao.ClassPermanent, false, nil},
		"too long":               {answer(1406), false, hongbao.ClassPermanent, false, nil},
		"too long to be sent":    {driver.ErrSkip, true, hongbao.ClassPermanent, false, nil},
		"row deleted by hand":    {answer(1452), true, hongbao.ClassBroken, false, nil},
		"an unknown code":        {answer(65000), false, hongbao.ClassTransient, true, nil},
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
