// Package run has the processes of a deployment that run until they are stopped: work, serve and balance. Each connects
// to its servers, builds its parts, and runs them.
package run
