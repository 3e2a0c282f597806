// Package configs collects every knob of Hongbao from the Config fields of the packages that use them; internal/base/knob
// says how a field describes its knob. From these come the flags, the names in the environment, the reference page
// docs/configuration.md and the example hongbao.yaml, so these can't differ.
//
// In order of use:
//
//   - AddFlags defines a flag for each knob;
//   - Load merges defaults, a YAML file, the environment and the flags, later ones winning, and gives a Config, or an
//     *Error with every problem at once: what is wrong, where it stands, what to do;
//   - RedisClient, ReadsClient, Logger, Space and the ...Config methods give what each stage wants. Every option of a
//     client library whose default could lose money or hang is written out there.
//
// It refuses what it does not know for sure: an unknown key, with a hint; a number without its unit; values that
// contradict each other; a key that stands twice; two documents in one file.
//
// Secrets come from the environment, as HONGBAO_REDIS_PASSWORD, or from a file that only its owner can read, named by
// HONGBAO_REDIS_PASSWORD_FILE. In the YAML file and on the command line, which others can read, they are refused. A
// Secret prints as ***.
package configs

//go:generate go test -run ^TestGenerated$ . -update
