// Package faults breaks a development server on purpose, and tells in plain sentences what that does: a worker is
// killed, Kafka is cut off, answers are lost. The figures are read from Redis while it happens. It belongs to
// `hongbao dev` and to the demo; a server for money has none of it.
package faults
