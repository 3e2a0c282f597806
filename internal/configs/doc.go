// Package configs collects every knob of Hongbao from the Config fields of the packages that use them.
// internal/base/knob defines how a field describes its knob. The flags, the names in the environment, the reference
// page docs/configuration.md and the example hongbao.yaml all come from these fields, so they can't differ.
//
// In order of use:
//
//   - AddFlags defines a flag for each knob;
//   - Load merges the defaults, a YAML file, the environment and the flags; later sources win. It returns a Config,
//     or an *Error with every problem: what is wrong, where the value is, and what to do;
//   - RedisClient, ReadsClient, Logger, Space and the ...Config methods return the settings of each stage. They set
//     every option of a client library whose default could lose money or hang.
//
// Load refuses every ambiguous configuration: an unknown key, a duration without a unit, values that contradict each
// other, a key that occurs twice, and two documents in one file.
//
// Secrets come from the environment, as HONGBAO_REDIS_PASSWORD, or from a file that only its owner can read, named by
// HONGBAO_REDIS_PASSWORD_FILE. Load refuses them in the YAML file and on the command line, which others can read. A
// Secret prints as ***.
package configs

//go:generate go test -run ^TestGenerated$ . -update
