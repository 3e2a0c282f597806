// Package test holds what no package can test alone. It has no code of its own: only tests, and the soak beside them.
//
//   - style_test.go checks what no linter can say: each script has a head. The linter holds the rest, see
//     .golangci.yml;
//   - readme_test.go runs the commands that README shows and compares what they print; every file and make target
//     that the documents name must be there;
//   - losses_test.go has the rows of docs/reliability.md: Redis loses writes in many ways, and users are asked what they were
//     told. `make losses` runs all of them;
//   - the others run several stages together, most of them the built program too, on real servers of
//     internal/testkit, with faults in between: one copy in Kafka, close and refund, replays, a remote balance system
//     that lies, Redis Cluster, a torn append-only file, foreign readers of the topic.
//
// A fault test counts that its fault really fired.
package test
