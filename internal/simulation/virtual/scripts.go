package virtual

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// scripts names the scripts of a history. A script is known by its text, which the client sends once to each server.
type scripts struct {
	mu     sync.Mutex
	source map[string]string // from a script's own text to its name
	known  map[string]bool   // all names
	names  map[string]string // from the SHA-1 of a whole text to the name
	texts  map[string]string // from the SHA-1 of a text with flags to the text without
	drain  map[string]bool   // the names of scripts that run when Redis is out of memory
}

const flags = "#!lua flags=allow-oom\n"

// luaFolder has the scripts; tests run in the folder of their package.
const luaFolder = "../../lua"

func newScripts() *scripts {
	s := &scripts{source: map[string]string{}, known: map[string]bool{}, names: map[string]string{},
		texts: map[string]string{}, drain: map[string]bool{}}
	files, _ := filepath.Glob(filepath.Join(luaFolder, "*.lua"))
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil {
			name := strings.TrimSuffix(filepath.Base(f), ".lua")
			s.source[string(text)], s.known[name] = name, true
			if _, body, has := strings.Cut(string(text), "\n\n"); has && name == "touch" { // it is sent without its head
				s.source[body] = name
			}
		}
	}
	return s
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis names scripts by it
	return hex.EncodeToString(sum[:])
}

// named reports whether a name is that of a script.
func (s *scripts) named(op string) bool { return s.known[op] }

// op names a command: a script by its name, another command by its own.
func (s *scripts) op(args []string) string {
	command := strings.ToLower(args[0])
	if len(args) < 2 {
		return command
	}
	switch command {
	case "eval":
		return s.learn(args[1])
	case "evalsha":
		s.mu.Lock()
		defer s.mu.Unlock()
		if name := s.names[args[1]]; name != "" {
			return name
		}
	case "script":
		if len(args) > 2 {
			s.learn(args[2])
		}
		return "script load"
	case "xgroup", "client", "config", "info":
		return command + " " + strings.ToLower(args[1])
	}
	return command
}

// learn returns the name of the script with a text, and remembers its SHA-1.
func (s *scripts) learn(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sha := digest(text)
	if name := s.names[sha]; name != "" {
		return name
	}
	name := "eval"
	for source, n := range s.source {
		if strings.HasSuffix(text, source) {
			name = n
			break
		}
	}
	s.names[sha] = name
	if plain, has := strings.CutPrefix(text, flags); has {
		plain = strings.ReplaceAll(plain, "redis.REDIS_VERSION_NUM", "0x070200")
		s.texts[sha], s.drain[name], s.names[digest(plain)] = plain, true, name
	}
	return name
}

// plain returns the text of a script without what miniredis does not support: its flags, and the number of the version.
func (s *scripts) plain(sha string) (text string, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, has = s.texts[sha]
	return text, has
}

// drains reports whether a script, by the SHA-1 of its text, may use more memory when Redis is out of it.
func (s *scripts) drains(sha string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain[s.names[sha]]
}
