// Package doctest reads the project's Markdown pages for tests: fenced blocks
// with what is to be done with them, tables, links and the names that stand in
// code spans. A page that shows a command which does not work, or names a file
// that is gone, then fails a test.
//
//	blocks, err := doctest.Blocks("README.md", text)
//	for _, block := range blocks {
//		handling, err := block.Handling() // run it, ask make -n about it, or leave it, for a reason
//	}
//
// It knows the part of Markdown that the pages use and no more: fences, pipe
// tables, inline links, ATX headings.
package doctest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Block is one fenced block of a page.
type Block struct {
	File     string
	Line     int    // of the opening fence, from 1
	Language string // first word after the fence
	Mark     string // the HTML comment on the line before the fence, without its brackets
	Text     string // without the fences and their indentation
}

// A Handling says what a test does with a block.
type Handling int

// The ways to handle a block.
const (
	Leave   Handling = iota // no command, or marked with a reason not to run it
	Run                     // marked: a shell runs it
	DryMake                 // only make commands: make -n must accept each
)

var (
	fence   = regexp.MustCompile("^([ \t]*)(```+|~~~+)[ \t]*([^ \t`]*)")
	comment = regexp.MustCompile(`^[ \t]*<!--[ \t]*(.*?)[ \t]*-->[ \t]*$`)

	commandLanguages = []string{"sh", "bash", "shell", "console"}
	otherLanguages   = []string{"text", "go", "json", "toml", "yaml", "diff", "makefile"}

	// recursive commands run all tests, this package's included.
	recursive = regexp.MustCompile(`\bmake\b|\bgo\b[^\n]*\btest\b[^\n]*(\./\.\.\.|internal/doctest)|\.ci/run`)
)

// Blocks returns the fenced blocks of a page in order. A fence that is never
// closed, or has no language, is an error.
func Blocks(file string, text []byte) ([]Block, error) {
	var blocks []Block
	var open *Block
	var indent, marks, mark string
	for i, line := range strings.Split(string(text), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			indent, marks = m[1], m[2]
			open = &Block{File: file, Line: i + 1, Language: m[3], Mark: mark}
			if open.Language == "" {
				return nil, fmt.Errorf("%s:%d: a fenced block needs a language, so that a command cannot hide: ```sh, ```text", file, i+1)
			}
		case open != nil && m != nil && m[3] == "" && strings.HasPrefix(m[2], marks):
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		}
		if m := comment.FindStringSubmatch(line); m != nil {
			mark = m[1]
		} else if strings.TrimSpace(line) != "" {
			mark = ""
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the fenced block is never closed", file, open.Line)
	}
	return blocks, nil
}

// Handling says what to do with the block. A block of commands that nobody
// checks, for no stated reason, is an error, and so is one that would run the
// tests that read it.
func (b Block) Handling() (Handling, error) {
	reason, notRun := strings.CutPrefix(b.Mark, "not run:")
	switch {
	case b.Mark != "" && b.Mark != "run" && !notRun:
		return Leave, fmt.Errorf("%s:%d: the mark %q is neither run nor not run: REASON", b.File, b.Line, b.Mark)
	case !slices.Contains(commandLanguages, b.Language):
		if !slices.Contains(otherLanguages, b.Language) {
			return Leave, fmt.Errorf("%s:%d: language %q is not one of %s", b.File, b.Line, b.Language,
				strings.Join(slices.Concat(commandLanguages, otherLanguages), ", "))
		}
		return Leave, nil
	case b.Mark == "run":
		if found := recursive.FindString(b.Text); found != "" {
			return Leave, fmt.Errorf("%s:%d: %q would run the tests that read this block; leave make to make -n", b.File, b.Line, found)
		}
		return Run, nil
	case notRun && strings.TrimSpace(reason) != "":
		return Leave, nil
	case notRun:
		return Leave, fmt.Errorf("%s:%d: the mark says not run but not why", b.File, b.Line)
	}
	for _, command := range b.Commands() {
		if command != "make" && !strings.HasPrefix(command, "make ") {
			return Leave, fmt.Errorf("%s:%d: nothing checks %q: mark the block with <!-- run --> or <!-- not run: REASON -->", b.File, b.Line, command)
		}
	}
	return DryMake, nil
}

// Commands returns the commands of the block, one a line, without comments
// and prompts.
func (b Block) Commands() []string {
	var commands []string
	for _, line := range strings.Split(b.Text, "\n") {
		line, _, _ = strings.Cut(line, " #")
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		if line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	return commands
}
