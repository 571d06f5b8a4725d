package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Date is a day in the Gregorian calendar, at midnight.
type Date struct{ Year, Month, Day int }

var (
	dateText   = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)$`)
	monthNames = strings.Fields("January February March April May June July August September October November December")
	dayNames   = strings.Fields("Sunday Monday Tuesday Wednesday Thursday Friday Saturday")
)

// ParseDate reads a date as 2026-11-03.
func ParseDate(s string) (d Date, ok bool) {
	m := dateText.FindStringSubmatch(s)
	if m == nil {
		return d, false
	}
	for i, to := range []*int{&d.Year, &d.Month, &d.Day} {
		*to, _ = strconv.Atoi(m[i+1])
	}
	return d, d.Year > 0 && d.Month >= 1 && d.Month <= 12 && d.Day >= 1 && d.Day <= daysOf(d.Year, d.Month)
}

func daysOf(year, month int) int {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return []int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
}

// yearDay counts the days of the year from 1.
func (d Date) yearDay() int {
	n := d.Day
	for m := 1; m < d.Month; m++ {
		n += daysOf(d.Year, m)
	}
	return n
}

// weekday counts from Sunday, 0.
func (d Date) weekday() int {
	y := d.Year - 1
	return (y + y/4 - y/100 + y/400 + d.yearDay()) % 7
}

// Format is Python's strftime of the date, in its C locale.
func (d Date) Format(format string) (string, error) {
	var b strings.Builder
	for {
		text, rest, more := strings.Cut(format, "%")
		b.WriteString(text)
		if !more {
			return b.String(), nil
		}
		n := min(1, len(rest))
		if strings.HasPrefix(rest, "-") {
			n = min(2, len(rest))
		}
		part, ok := d.part(rest[:n])
		if !ok {
			return "", fmt.Errorf("the directive %%%s is not supported", rest[:n])
		}
		b.WriteString(part)
		format = rest[n:]
	}
}

// part is what a directive stands for.
func (d Date) part(directive string) (string, bool) {
	month, day := monthNames[d.Month-1], dayNames[d.weekday()]
	parts := map[string]string{
		"%": "%", "Y": fmt.Sprintf("%04d", d.Year), "y": fmt.Sprintf("%02d", d.Year%100), "m": fmt.Sprintf("%02d", d.Month), "d": fmt.Sprintf("%02d", d.Day),
		"e": fmt.Sprintf("%2d", d.Day), "j": fmt.Sprintf("%03d", d.yearDay()), "-d": strconv.Itoa(d.Day), "-m": strconv.Itoa(d.Month),
		"b": month[:3], "h": month[:3], "B": month, "a": day[:3], "A": day,
		"H": "00", "I": "12", "M": "00", "S": "00", "p": "AM", "T": "00:00:00", "R": "00:00",
		"F": fmt.Sprintf("%04d-%02d-%02d", d.Year, d.Month, d.Day),
	}
	part, ok := parts[directive]
	return part, ok
}
