package db

import (
	"encoding/json"

	"github.com/hongbao-project/hongbao"
)

// Table is an argument that passes many rows to one statement. It has a column for each of the rows' values: []string,
// []int32 or []int64, all of the same length. PostgreSQL takes it as one array a column, so the next argument has the
// number after the last column; the others take it as one JSON array of rows.
type Table []any

// Rows returns the number of rows.
func (t Table) Rows() int {
	switch column := t[0].(type) {
	case []string:
		return len(column)
	case []int32:
		return len(column)
	default:
		return len(column.([]int64)) //nolint:forcetypeassert // there is no other type
	}
}

// AppendRow appends the values of a row to a slice.
func (t Table) AppendRow(to []any, row int) []any {
	for _, column := range t {
		switch column := column.(type) {
		case []string:
			to = append(to, column[row])
		case []int32:
			to = append(to, column[row])
		case []int64:
			to = append(to, column[row])
		}
	}
	return to
}

// AsJSON returns the arguments with a JSON array of rows, [["c",1,...],...], in place of a Table.
func AsJSON(args []any) ([]any, error) {
	if len(args) == 0 {
		return args, nil
	}
	table, ok := args[0].(Table)
	if !ok {
		return args, nil
	}
	rows := make([][]any, table.Rows())
	cells := make([]any, 0, len(rows)*len(table))
	for i := range rows {
		cells = table.AppendRow(cells, i)
		rows[i] = cells[i*len(table):]
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "encode %d rows as JSON: %w", len(rows), err)
	}
	return append([]any{string(text)}, args[1:]...), nil
}

// AsColumns returns the arguments with the columns in place of a Table.
func AsColumns(args []any) []any {
	if len(args) == 0 {
		return args
	}
	table, ok := args[0].(Table)
	if !ok {
		return args
	}
	return append(table[:len(table):len(table)], args[1:]...)
}
