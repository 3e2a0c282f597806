package bank

import "github.com/hongbao-project/hongbao/internal/configs"

// Config configures a Balance: the knobs of section balance.
type Config = configs.Balance
