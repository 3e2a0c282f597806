// Package test has the tests that involve several packages, and the soak. It has no code of its own.
//
//   - style_test.go checks rules that no linter can check: each script has a head. The linter checks the other rules,
//     see .golangci.yml;
//   - readme_test.go runs the commands of README and compares their output; every file and make target that the
//     documents name must exist;
//   - losses_test.go tests the rows of docs/reliability.md: Redis loses writes in many ways, and the users' answers
//     are compared with the result. `make losses` runs all of them;
//   - the others run several stages together, most of them the built program too, on real servers of
//     internal/testkit, with faults in between: one copy in Kafka, close and refund, replays, a remote balance system
//     that lies, Redis Cluster, a torn append-only file, foreign readers of the topic.
//
// A fault test checks that its fault really happened.
package test
