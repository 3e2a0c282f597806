package subscriber

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
)

// refuseUnreleased returns an error if a build before the first release has rows of this Name in hongbao_position. It
// stored there, and not in hongbao_seen, which events had their effect, so a copy of such an event would have it again.
func (s *sqlSink) refuseUnreleased(ctx context.Context) error {
	find := `SELECT count(*) FROM sqlite_master WHERE name = 'hongbao_position'`
	if s.cfg.Dialect == postgreSQL {
		find = `SELECT count(to_regclass('hongbao_position'))`
	}
	var n int
	err := s.cfg.DB.QueryRowContext(ctx, find).Scan(&n)
	if err == nil && n > 0 {
		err = s.cfg.DB.QueryRowContext(ctx, `SELECT count(*) FROM hongbao_position WHERE name = $1`, s.cfg.Name).Scan(&n)
	}
	if err != nil {
		return fmt.Errorf("look for rows in hongbao_position: %w", err)
	}
	if n > 0 {
		return hongbao.Errorf(hongbao.ClassBroken, "table hongbao_position has %d rows of subscriber %q: a build before the "+
			"first release stored there which events had their effect, and no release reads it. Nothing was changed. Use a "+
			"database without them, or, if no copy of those events can come, DELETE FROM hongbao_position WHERE name = '%s'",
			n, s.cfg.Name, s.cfg.Name)
	}
	return nil
}
