// Package run has the processes of a deployment that run until they are stopped: work, serve and balance. Each opens what
// it needs, builds its parts, and runs them. Everything else is in the packages that it imports.
package run
