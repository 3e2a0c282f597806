package serve

import (
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// Config configures a Server. Its fields are the configuration keys of section serve.
type Config = configs.Serve

// Limits returns the limits of each listener's connections.
func Limits(c *Config) web.Limits {
	return web.Limits{
		ReadHeaderTimeout: c.ReadHeaderTimeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout,
		IdleTimeout: c.IdleTimeout,
	}
}
