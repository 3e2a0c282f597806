// Package test holds what no package can test alone. It has no code of its own: only tests, and the soak beside them.
//
//   - law_test.go enforces the import arrows cmd -> configs -> stages -> lua -> root, and names the one that was broken;
//   - style_test.go enforces what else can be read off the source: no sleep and no skip in tests, a head on every script,
//     nothing unfinished;
//   - readme_test.go runs the commands that README shows and compares what they print; every file and make target that the
//     documents name must be there;
//   - the others run several stages together, most of them the built program too, on real servers of internal/testkit, with
//     faults in between: one copy in Kafka, close and refund, replays, a remote balance system that lies, Redis Cluster, a
//     torn append-only file, foreign readers of the topic.
//
// A fault test counts that its fault really fired.
package test
