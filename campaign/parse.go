package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of a specification's text.
const (
	maxSpecBytes = 1 << 20
	maxSpecDepth = 8
)

// parse returns the text as a tree of plain maps, lists and scalars. If it can't, it adds a problem and returns nil.
func parse(data []byte, p *problems) *yaml.Node {
	if !utf8.Valid(data) {
		p.add("", "not_utf8", "the text is not UTF-8; save it as UTF-8")
		return nil
	}
	var root *yaml.Node
	// Valid JSON is parsed as JSON, because YAML differs: it has no surrogate pairs in escapes and no tabs for
	// indentation.
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(data) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var err error
		if root, err = parseJSON(d); err != nil {
			p.add("", "syntax", "the text is not JSON: %.120q", err.Error())
			return nil
		}
	} else {
		root = parseYAML(data, p)
	}
	if root == nil || !plain(root, p, 0) {
		return nil
	}
	return root
}

func parseYAML(data []byte, p *problems) *yaml.Node {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		p.add("", "document_required", "the text is empty; write a specification")
		return nil
	case err != nil:
		p.add("", "syntax", "the text is neither YAML nor JSON: %.120q", err.Error())
		return nil
	}
	var next yaml.Node
	if err := d.Decode(&next); !errors.Is(err, io.EOF) {
		p.add("", "more_than_one_document", "something follows the first document; give only one campaign")
		return nil
	}
	return doc.Content[0]
}

// parseJSON parses one value. The caller has checked with json.Valid that the text is valid and not nested too deeply
// for recursion.
func parseJSON(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for d.More() {
			child, err := parseJSON(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := d.Token() // the closing delimiter
		return n, err
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: t}, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// plain reports whether the tree is not nested too deeply and has no anchors, aliases or tags. If not, it adds a
// problem.
func plain(n *yaml.Node, p *problems, depth int) bool {
	switch {
	case depth > maxSpecDepth:
		p.add("", "too_deep", "the text has more than %d levels; a specification needs only 4", maxSpecDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.add("", "alias_refused", "line %d has a YAML anchor or alias; write the value in full", n.Line)
		return false
	case n.Style&yaml.TaggedStyle != 0:
		p.add("", "tag_refused", "line %d has a YAML tag; write the value without it", n.Line)
		return false
	}
	for _, child := range n.Content {
		if !plain(child, p, depth+1) {
			return false
		}
	}
	return true
}
