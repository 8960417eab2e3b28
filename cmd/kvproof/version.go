package main

import (
	"context"
	"io"
	"runtime/debug"
)

// runVersion prints the module's version, its revision where it was built in a
// repository, and Go's version.
func runVersion(_ context.Context, args []string, out, errs io.Writer) int {
	switch {
	case len(args) == 0:
	case args[0] == "-h":
		say(out, "usage: kvproof version\n")
		return exitOK
	default:
		say(errs, "kvproof version: takes no arguments, got %q\n", args)
		return exitUsage
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		say(errs, "kvproof version: this binary carries no build information\n")
		return exitFailed
	}
	revision := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = " " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			revision += " (modified)"
		}
	}
	say(out, "kvproof %s%s %s\n", info.Main.Version, revision, info.GoVersion)
	return exitOK
}
