// Package console serves the pages for operators. It uses html/template and server-sent events, and needs no
// build step. Its charts are drawings that the templates make. Pages load nothing from other servers.
//
// The package guarantees:
//
//   - One poller in each process reads the changing data, even if many people watch. It pauses while nobody watches.
//   - The server checks the rights of every viewer again every 4 seconds. All streams end when the server drains.
//   - A page shows only buttons that its caller may use, and the server checks the caller's role again at each request.
//   - The package does not access the stores itself. It reads with a Source, makes changes with Actions and identifies
//     callers with an Authority. internal/app provides all three.
package console

//go:generate go test -run ^TestGenerated$ . -update
