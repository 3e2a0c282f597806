// Package console has the pages for operators: html/template, server-sent events, one embedded chart library, and no
// build step. No page loads anything from another server.
//
// The package promises:
//
//   - One poller a process reads the changing data, however many people watch. It pauses while no one does.
//   - The server checks a watcher's rights again every 4 seconds, and all streams end when the server drains.
//   - A page shows the buttons that its caller may press. The server checks the caller's role again at each press.
//   - The package accesses no server itself: a Source reads, Actions change, and an Authority identifies callers.
//     internal/app provides all three.
package console
