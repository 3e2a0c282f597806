package campaign

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

const couponSpec = `
id: coupons
name: Coupons
kind: coupon
packets: %d
split: {mode: even}
window: {from: 2027-02-06T20:00:00Z, to: 2027-02-06T21:00:00Z}
sponsor: acme
codes: %s
`

func readCoupons(packets int, codes string) (hongbao.Campaign, error) {
	return Read(strings.NewReader(fmt.Sprintf(couponSpec, packets, codes)))
}

func TestCodesOfASpecification(t *testing.T) {
	t.Parallel()
	c, err := readCoupons(100, `{pattern: "SPRING-####-????"}`)
	require.NoError(t, err)
	require.Equal(t, &hongbao.Codes{Pattern: "SPRING-####-????"}, c.Codes)
	require.Contains(t, string(Canonical(c)), `"durability":"fast","codes":{"pattern":"SPRING-####-????"}}`)
	again, err := Read(strings.NewReader(string(Canonical(c))))
	require.NoError(t, err)
	require.Equal(t, c, again)
	c, err = readCoupons(100, `{file: codes.txt}`)
	require.NoError(t, err)
	require.Equal(t, &hongbao.Codes{File: "codes.txt"}, c.Codes)
	require.NotContains(t, string(Canonical(readValid(t))), "codes", "without codes, the canonical form has no such field")
}

func readValid(t *testing.T) hongbao.Campaign {
	t.Helper()
	c, err := Read(strings.NewReader(strings.Replace(fmt.Sprintf(couponSpec, 5, ""), "codes: ", "", 1)))
	require.NoError(t, err)
	require.Nil(t, c.Codes)
	return c
}

// codeProblems lists the problem codes that the tests below provoke.
var codeProblems = []string{
	"codes_not_one", "code_pattern_invalid", "code_space_too_small", "code_file_invalid",
	"code_count_mismatch", "code_empty", "code_invalid", "code_duplicate",
}

func TestCodesThatCantBe(t *testing.T) {
	t.Parallel()
	for codes, want := range map[string][]string{
		`{}`:                                   {"codes_not_one"},
		`{pattern: "??????????", file: x.txt}`: {"codes_not_one"},
		`{pattern: "#####"}`:                   {"code_space_too_small"},
		`{pattern: "???????"}`:                 {"code_space_too_small"}, // 22^7 = 2.5e9 codes, but 1e10 are needed
		`{pattern: "?????????? ä"}`:            {"code_pattern_invalid"},
		`{pattern: "` + strings.Repeat("#", 65) + `", file: "a\nb"}`: {"codes_not_one", "code_file_invalid", "code_pattern_invalid"},
		`[]`:            {"wrong_type"},
		`{patern: "#"}`: {"unknown_field"},
		`{file: ""}`:    {"required"},
	} {
		_, err := readCoupons(10_000, codes)
		requireCodes(t, err, want...)
	}
	_, err := readCoupons(10_000, `{pattern: "????????"}`)
	require.NoError(t, err)
	c := readValid(t)
	c.Kind, c.Total, c.Currency, c.Codes = hongbao.KindRedPacket, 5, "CNY", &hongbao.Codes{File: "x"}
	requireCodes(t, Validate(c, c.From), "not_allowed_here")
}

func requireCodes(t *testing.T, err error, want ...string) {
	t.Helper()
	var e *SpecError
	require.ErrorAs(t, err, &e)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	got := map[string]bool{}
	for _, p := range e.Problems {
		got[p.Code] = true
	}
	for _, code := range want {
		require.True(t, got[code], "%s is missing in %v", code, err)
	}
	require.Len(t, got, len(want), "%v", err)
}

// Every drawn code matches its pattern, and each character of an alphabet occurs about equally often.
func TestDrawCodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[#?A-Za-z0-9._-]{1,64}`).Draw(t, "pattern")
		want := regexp.QuoteMeta(pattern)
		want = strings.ReplaceAll(strings.ReplaceAll(want, "#", "[0-9]"), `\?`, "[ABCDEFGHJKMNPQRSTVWXYZ]")
		fits := regexp.MustCompile("^" + want + "$")
		for _, code := range DrawCodes(pattern, 20) {
			require.Regexp(t, fits, code)
			require.NoError(t, hongbao.CheckCode(code))
		}
	})
	count := map[rune]int{}
	for _, code := range DrawCodes("####????", 50_000) {
		for _, r := range code {
			count[r]++
		}
	}
	require.Len(t, count, 10+22)
	for r, n := range count {
		mean := 200_000 / 22
		if r <= '9' {
			mean = 200_000 / 10
		}
		require.InDelta(t, mean, n, float64(mean)/10, "%c came %d times", r, n) // more than ten standard deviations
	}
}

func TestReadCodes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"A1\nB2\nC3\n", "A1\r\nB2\r\nC3", "A1\nB2\nC3"} {
		codes, err := ReadCodes(strings.NewReader(text), 3)
		require.NoError(t, err)
		require.Equal(t, []string{"A1", "B2", "C3"}, codes)
	}
	_, err := ReadCodes(iotest.ErrReader(fmt.Errorf("the disk is gone")), 3)
	require.ErrorContains(t, err, "the disk is gone")
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
}

// ReadCodes names each problem by its line, up to a maximum, and repeats no code.
func TestReadCodesRefuses(t *testing.T) {
	t.Parallel()
	says := func(text string, packets int64, want ...string) error {
		t.Helper()
		codes, err := ReadCodes(strings.NewReader(text), packets)
		require.Nil(t, codes)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
		require.NotContains(t, err.Error(), "SECRET")
		return err
	}
	_ = says("", 1, "the file has 0 lines, but the campaign has 1 packets")
	_ = says("SECRET1\n", 2, "the file has 1 lines")
	_ = says("SECRET1\nSECRET2\nSECRET3\n", 2, "more than 2 lines")
	err := says("SECRET1\n\nSECRET3 \n\x00SECRET\nSECRET1\n"+strings.Repeat("SECRET", 11)+"\nSECRET1\n", 9, "problems: 7",
		"code_count_mismatch: the file has 7 lines", "line 2 is empty", "line 3: byte 7 is 0x20", "line 4: byte 0 is 0x00",
		"line 5 repeats line 1",
		"line 6: the code has 66 bytes", "line 7 repeats line 1")
	requireCodes(t, err, codeProblems[4:]...)
	_ = says("\ufeffSECRET\n", 1, "line 1: byte 0 is 0xef")
	_ = says("SECRET1\n"+strings.Repeat("SECRET", 20_000), 2, "line 2 is longer than 65536 bytes")
	_ = says(strings.Repeat("SECRET\n", 5000), 5000, "problems: 100", "line 2 repeats line 1", "line 101 repeats line 1")
	_ = says(strings.Repeat("SECRET\n", 5000), 4999, "problems: 100", "more than 4999 lines")
}
