// Package run has the processes of a deployment that run until they are stopped: work, serve and balance. Each opens
// its servers, builds its parts, and runs them. Everything else is in the packages that it imports.
package run
