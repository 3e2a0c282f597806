package db

import (
	"encoding/json"
	"reflect"

	"github.com/hongbao-project/hongbao"
)

// PackJSON encodes columns as a JSON array of rows: [["c",1,...],...].
func PackJSON(columns ...any) ([]any, error) {
	values := make([]reflect.Value, len(columns))
	for i, c := range columns {
		values[i] = reflect.ValueOf(c)
	}
	rows := make([][]any, values[0].Len())
	cells := make([]any, len(rows)*len(columns))
	for i := range rows {
		rows[i], cells = cells[:len(columns)], cells[len(columns):]
		for j, v := range values {
			rows[i][j] = v.Index(i).Interface()
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "encode %d rows as JSON: %w", len(rows), err)
	}
	return []any{string(text)}, nil
}
