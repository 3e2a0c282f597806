package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/remote"
)

// parsePacket reads CAMPAIGN/PACKET.
func parsePacket(text string) (hongbao.Grant, error) {
	id, number, _ := strings.Cut(text, "/")
	packet, err := strconv.ParseInt(number, 10, 64)
	if hongbao.CheckCampaignID(id) != nil || err != nil || packet < 1 {
		return hongbao.Grant{}, usage("--packet %.120q: want CAMPAIGN/PACKET, as rain/17", text)
	}
	return hongbao.Grant{Campaign: id, Packet: packet}, nil
}

// confirmPackets ends credits in doubt for which no letter stands any more. What is booked is recorded; what is not is forgotten, and never
// sent: whoever dropped its letter has decided that.
func (d *deps) confirmPackets(ctx context.Context, f *confirmFlags, word told, report *confirmed) error {
	if len(f.packets) == 0 {
		return nil
	}
	if err := d.openLedger(ctx); err != nil {
		return err
	}
	h, err := d.remote(ctx, false, word)
	if err != nil {
		return err
	}
	settler, err := d.settler(ctx)
	if err != nil {
		return err
	}
	for _, text := range f.packets {
		at, err := parsePacket(text)
		if err != nil {
			return err
		}
		key := hongbao.Grant{Campaign: at.Campaign, Packet: at.Packet - 1}
		rows, err := settler.Pending(ctx, 0, key, 1)
		if err != nil {
			return err
		}
		if len(rows) == 0 || rows[0].Grant.Campaign != at.Campaign || rows[0].Grant.Packet != at.Packet {
			return fmt.Errorf("nothing is in doubt about packet %d of campaign %s: it was recorded, or never asked for", at.Packet, at.Campaign)
		}
		row := &rows[0]
		if left := d.cfg.Remote.ClaimTime - row.Idle; left > 0 {
			return hongbao.Errorf(hongbao.Transient, "packet %d of campaign %s was asked for %s ago, and a worker may still be at it: run this again in %s",
				at.Packet, at.Campaign, row.Idle, left)
		}
		g := &row.Grant
		report.Credits = append(report.Credits, confirmedCredit{text, remote.Key(d.cfg.Deployment.ID, g.Campaign, g.Packet), g.User, g.Amount,
			d.ledgerCurrency(ctx, g.Campaign)})
		if f.dryRun {
			continue
		}
		if word.verdict == remote.Done {
			if errs := h.Handle(ctx, []hongbao.Grant{*g}); errs != nil {
				return errs[0]
			}
		} else if err := h.Unbook(ctx, *row); err != nil {
			return err
		}
		d.log.Info("a credit in doubt was decided", zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet), zap.Bool("booked", f.booked),
			zap.String("by", f.who.By), zap.String("why", f.who.Why))
	}
	return nil
}
