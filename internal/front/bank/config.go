package bank

import "github.com/hongbao-project/hongbao/internal/configs"

// Config configures a Balance. Its fields are the configuration keys of section balance.
type Config = configs.Balance
