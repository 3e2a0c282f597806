package lua

import "embed"

//go:embed *.lua
var files embed.FS

// Source gives the text of a script by its name, "grab" for grab.lua. It panics if there is none of that name.
func Source(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the names are constants of this module
	}
	return string(text)
}
