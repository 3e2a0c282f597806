package control

func journalOperations() []operation { return nil }
