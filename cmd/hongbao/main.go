// Command hongbao is the program Hongbao; see package command.
package main

import "github.com/hongbao-project/hongbao/command"

func main() { command.Main() }
