// Package console is the pages that operators look at and work with: html/template, server-sent events, one chart
// library that is shipped with them, and no build step. No page asks another machine for anything.
//
// What it promises:
//
//   - One poller a process reads what changes, however many people watch; it stands still while nobody does.
//   - Whoever watches is asked for his right to do so again every 10 seconds, and all streams end when the server
//     drains.
//   - A page shows the buttons that its caller may press. The server checks the caller's role again when one is pressed.
//   - It knows no server: a Source reads, Actions change, Sessions say who calls. internal/app has all three.
package console
