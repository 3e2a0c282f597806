package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/run"
)

// completer returns the completions of a prefix. A completion may have an explanation after a tab.
type completer func(cmd *cobra.Command, prefix string) ([]string, error)

// completeTime bounds the wait for a server, because the user's shell waits. completeMost bounds the number of
// completions.
const (
	completeTime = 2 * time.Second
	completeMost = 100
)

// byWord maps an argument's placeholder in a command's usage to its completer. With nil the shell completes file names.
var byWord = map[string]completer{
	"CAMPAIGN": offerCampaigns, "SINK": offerSinks, "LETTER": offerLetters, "KEY": offerKeys, "CLIENT": offerClients,
	"ID": offerQuarantined, "NAME": offerReplays, "serve|control|work|balance": offerOneOf(run.HealthCommands()),
	"CLAIM": offerClaims, "FILE": nil, "FOLDER": nil, "USER": offerNothing,
}

// byFlag has the completers of flags that have the same meaning in every command.
var byFlag = map[string]completer{
	"campaign": offerCampaigns, "sink": offerSinks, "dead": offerSinks, "to": offerTargets, "shard": offerShards,
	"role": func(*cobra.Command, string) ([]string, error) {
		var roles []string
		for _, r := range access.Roles() {
			roles = append(roles, string(r))
		}
		return roles, nil
	},
	"client": offerClients, "class": offerOneOf(model.LetterClasses()), "status": offerOneOf(model.CampaignStatuses()),
}

// complete adds completions to a command and its subcommands. cobra generates the scripts for each shell.
func complete(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		complete(c)
	}
	words := argumentWords(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(words) == 0 || len(args) >= len(words) && !repeats(cmd) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return answer(byWord[words[min(len(args), len(words)-1)]], cmd, args, prefix)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { // only the command's own: cobra adds the others when it runs the command
		if c := byFlag[f.Name]; c != nil {
			// The call fails only for a flag that does not exist or that has a completion already.
			_ = cmd.RegisterFlagCompletionFunc(f.Name,
				func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
					return answer(c, cmd, nil, prefix)
				})
		}
	})
}

// argumentWords returns the placeholders of a command's arguments, as its usage has them.
func argumentWords(cmd *cobra.Command) (words []string) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "--") {
			break
		}
		words = append(words, strings.Trim(word, "[].")) // [LETTER...]
	}
	return words
}

// repeats reports whether the last argument of a command can be repeated.
func repeats(cmd *cobra.Command) bool { return strings.HasSuffix(cmd.Use, "...]") }

// answer calls a completer. It returns no completions if the server is down or the configuration is wrong, because a
// shell can't show an error while the user types.
func answer(c completer, cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if c == nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	cmd.SetContext(ctx)
	all, err := c(cmd, prefix)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	fits := slices.DeleteFunc(all, func(s string) bool {
		value, _, _ := strings.Cut(s, "\t")
		return !strings.HasPrefix(value, prefix) || slices.Contains(given, value)
	})
	directive := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if len(fits) == 1 && strings.HasSuffix(fits[0], ":") { // the user types on after topic:
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return fits[:min(len(fits), completeMost)], directive
}

func offerNothing(*cobra.Command, string) ([]string, error) { return nil, nil }

func offerOneOf(words []string) completer {
	return func(*cobra.Command, string) ([]string, error) { return slices.Clone(words), nil }
}

func offerCampaigns(cmd *cobra.Command, prefix string) (ids []string, err error) {
	offer := func(list []model.Campaign) {
		for i := range list {
			c := &list[i]
			ids = append(ids, fmt.Sprintf("%s\t%s, from %s", c.ID, c.State, c.From.Format(time.RFC3339)))
		}
	}
	if serverOf(cmd) != "" {
		err = operate(cmd, app.Needs{}, func(o ops.Operations) error {
			list, err := o.ListCampaigns(cmd.Context())
			offer(list)
			return err
		})
		return ids, err
	}
	err = with(cmd, app.Needs{Ledger: true}, func(a *app.App) error {
		page, err := campaigns.Of(a).ListCampaigns(cmd.Context(), "", completeMost,
			func(id string) bool { return strings.HasPrefix(id, prefix) })
		offer(page.Campaigns)
		return err
	})
	return ids, err
}

// offerSinks completes the sinks of the deployment at --server, or else the sinks of the configuration.
func offerSinks(cmd *cobra.Command, _ string) (names []string, err error) {
	if serverOf(cmd) != "" {
		err := operate(cmd, app.Needs{}, func(o ops.Operations) error {
			s, err := o.ListSinks(cmd.Context())
			if err == nil {
				for i := range s.Sinks {
					names = append(names, s.Sinks[i].Sink)
				}
			}
			return err
		})
		return names, err
	}
	cfg, err := load(cmd)
	if err != nil {
		return nil, err
	}
	return slices.Clone(cfg.Deployment.Sinks), nil
}

func offerTargets(cmd *cobra.Command, prefix string) ([]string, error) {
	all, err := offerSinks(cmd, prefix)
	return append(all, "topic:"), err
}

func offerShards(cmd *cobra.Command, _ string) (numbers []string, err error) {
	cfg, err := load(cmd)
	if err != nil {
		return nil, err
	}
	for i := range cfg.Deployment.Shards {
		numbers = append(numbers, strconv.Itoa(i))
	}
	return numbers, nil
}

func offerLetters(cmd *cobra.Command, _ string) (ids []string, err error) {
	err = operate(cmd, app.Needs{}, func(o ops.Operations) error {
		page, err := o.ListLetters(cmd.Context(), ops.LetterList{Limit: model.MaxLetters})
		for i := range page.Letters {
			l := &page.Letters[i]
			ids = append(ids, fmt.Sprintf("%s\t%s, %.60q", l.ID, l.Class, l.Reason))
		}
		return err
	})
	return ids, err
}

func offerClaims(cmd *cobra.Command, _ string) (ids []string, err error) {
	err = with(cmd, app.Needs{}, func(a *app.App) error {
		list, err := deliveries.Of(a).ListClaimsOf(cmd.Context(), configs.SinkKafka) // without a scan for replays
		for i := range list {
			ids = append(ids, fmt.Sprintf("%s\t%d grants of %s", list[i].ID, list[i].Grants, list[i].Owner))
		}
		return err
	})
	return ids, err
}

func offerQuarantined(cmd *cobra.Command, _ string) (ids []string, err error) {
	err = operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
		page, err := o.ListQuarantine(cmd.Context(), ops.QuarantineList{Limit: completeMost})
		for i := range page.Grants {
			g := &page.Grants[i]
			ids = append(ids, fmt.Sprintf("%d\t%s, packet %d: %s", g.ID, g.Campaign, g.Packet, g.Reason))
		}
		return err
	})
	return ids, err
}

func offerKeys(cmd *cobra.Command, _ string) (ids []string, err error) {
	err = with(cmd, app.Needs{Keys: true}, func(a *app.App) error {
		all, err := apikeys.Of(a).Keys(cmd.Context(), false)
		for i := range all {
			ids = append(ids, fmt.Sprintf("%s\t%s %s", all[i].ID, all[i].Role, all[i].Note))
		}
		return err
	})
	return ids, err
}

func offerClients(cmd *cobra.Command, _ string) (names []string, err error) {
	err = with(cmd, app.Needs{Keys: true}, func(a *app.App) error {
		keys, err := apikeys.Of(a).Keys(cmd.Context(), false)
		if err != nil {
			return err
		}
		funds, err := payments.Of(a).Funds(cmd.Context())
		for i := range keys {
			if keys[i].Client != "" {
				names = append(names, keys[i].Client)
			}
		}
		for i := range funds {
			names = append(names, funds[i].Client)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		return err
	})
	return names, err
}

func offerReplays(cmd *cobra.Command, _ string) (names []string, err error) {
	err = with(cmd, app.Needs{Redis: true}, func(a *app.App) error {
		all, err := deliveries.Of(a).Replays(cmd.Context())
		for i := range all {
			state := "begun"
			if all[i].Finished {
				state = "finished"
			}
			names = append(names, fmt.Sprintf("%s\tto %s, %s", all[i].Name, all[i].Target, state))
		}
		return err
	})
	return names, err
}
