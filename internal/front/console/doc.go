// Package console serves the pages for operators. It uses html/template, server-sent events and one embedded chart
// library, and needs no build step. Pages load nothing from other servers.
//
// The package promises:
//
//   - One poller in each process reads the changing data, even if many people watch. It pauses while no one watches.
//   - The server checks a watcher's rights again every 4 seconds, and all streams end when the server drains.
//   - A page shows the buttons that its caller may use. The server checks the caller's role again at each request.
//   - The package accesses no server itself: a Source reads, Actions change, and an Authority identifies callers.
//     internal/app provides all three.
package console
