package cli

import (
	"os"
	"path/filepath"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
)

// readCodes reads the codes that a specification imports, or returns nil if it imports none. The path in codes.file is
// relative to the folder of spec, the specification's file.
func readCodes(spec string, c *hongbao.Campaign) ([]string, error) {
	if c.Codes == nil || c.Codes.File == "" {
		return nil, nil
	}
	path := c.Codes.File
	if spec != "-" && !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(spec), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, app.Usage("specification %s: codes.file: code_file_invalid: %w; each run of `hongbao campaign create` "+
			"needs the file", spec, err)
	}
	defer f.Close()
	codes, err := campaign.ReadCodes(f, c.Packets)
	if err != nil {
		return nil, app.Usage("codes of specification %s, file %s: %w", spec, path, err)
	}
	return codes, nil
}
