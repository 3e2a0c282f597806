package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/base/answers"
)

// wantsJSON reports whether --json is set.
func wantsJSON(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("json")
	return on && err == nil
}

// printAnswer prints an answer as text, or as one JSON document with --json.
func printAnswer(cmd *cobra.Command, answer any, write func(w io.Writer) error) error {
	if wantsJSON(cmd) {
		return wrap("print the answer", answers.Write(cmd.OutOrStdout(), answer, ""))
	}
	return wrap("print the answer", write(cmd.OutOrStdout()))
}

// printJSON prints indented JSON.
func printJSON(cmd *cobra.Command, v any) error {
	return wrap("print the answer", answers.Write(cmd.OutOrStdout(), v, "  "))
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
